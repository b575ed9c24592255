// tls.h: TLS over a socket that never blocks, by GnuTLS.
#ifndef LQ_TLS_H
#define LQ_TLS_H
#include "runtime/lq.h"
#include <sys/types.h>

typedef struct lq_tls_keys lq_tls_keys; // a certificate with its key
typedef struct lq_tls lq_tls;           // one connection

// PEM files; a certificate's file may hold its chain. The key may not be encrypted.
bool lq_tls_load(const char *cert, const char *key, lq_tls_keys **out, lq_err *err);
void lq_tls_unload(lq_tls_keys *k);

lq_tls *lq_tls_open(lq_tls_keys *k, int fd); // NULL: no memory
void lq_tls_close(lq_tls *t);
// 1: done; 0: to be called again when the socket can be read, or *write, written; -1: the client speaks something else.
int lq_tls_shake(lq_tls *t, bool *write);
// As recv and send: -1 with errno EAGAIN where there is nothing yet, or no room.
ssize_t lq_tls_recv(lq_tls *t, void *p, size_t n);
ssize_t lq_tls_send(lq_tls *t, const void *p, size_t n);
void lq_tls_end(lq_tls *t); // says that nothing more comes
#endif
