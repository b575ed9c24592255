// tls.c: TLS 1.2 and 1.3. Owns a session; the socket is its caller's.
#include "runtime/serve/tls.h"
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>

struct lq_tls_keys {
    gnutls_certificate_credentials_t cert;
    gnutls_priority_t priority;
};
struct lq_tls { gnutls_session_t session; };

bool lq_tls_load(const char *cert, const char *key, lq_tls_keys **out, lq_err *err) {
    lq_tls_keys *k = *out = calloc(1, sizeof *k);
    if (!k) return lq_fail(err, LQ_E_MEMORY, "no memory for a certificate");
    int failed = gnutls_certificate_allocate_credentials(&k->cert);
    if (!failed) failed = gnutls_certificate_set_x509_key_file(k->cert, cert, key, GNUTLS_X509_FMT_PEM);
    if (failed < 0)
        lq_fail(err, LQ_E_IO, "the certificate %s with the key %s: %s", cert, key, gnutls_strerror(failed));
    else if ((failed = gnutls_priority_init2(&k->priority, "-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", NULL,
                                             GNUTLS_PRIORITY_INIT_DEF_APPEND)) < 0)
        lq_fail(err, LQ_E_UNSUPPORTED, "GnuTLS has neither TLS 1.3 nor 1.2: %s", gnutls_strerror(failed));
    if (failed >= 0) return true;
    lq_tls_unload(k);
    *out = NULL;
    return false;
}

void lq_tls_unload(lq_tls_keys *k) {
    if (!k) return;
    if (k->cert) gnutls_certificate_free_credentials(k->cert);
    if (k->priority) gnutls_priority_deinit(k->priority);
    free(k);
}

lq_tls *lq_tls_open(lq_tls_keys *k, int fd) {
    static unsigned char name[] = "http/1.1";
    const gnutls_datum_t http = {name, sizeof name - 1};
    lq_tls *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    if (gnutls_init(&t->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        free(t);
        return NULL;
    }
    gnutls_transport_set_int(t->session, fd);
    if (gnutls_priority_set(t->session, k->priority) < 0 ||
        gnutls_credentials_set(t->session, GNUTLS_CRD_CERTIFICATE, k->cert) < 0 ||
        gnutls_alpn_set_protocols(t->session, &http, 1, 0) < 0) {
        lq_tls_close(t);
        return NULL;
    }
    return t;
}

void lq_tls_close(lq_tls *t) {
    if (!t) return;
    gnutls_deinit(t->session);
    free(t);
}

int lq_tls_shake(lq_tls *t, bool *write) {
    int e;
    do e = gnutls_handshake(t->session);
    while (e == GNUTLS_E_INTERRUPTED || (e < 0 && e != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(e)));
    *write = gnutls_record_get_direction(t->session) == 1;
    return e == GNUTLS_E_AGAIN ? 0 : e < 0 ? -1 : 1;
}

static ssize_t result(ssize_t n) {
    if (n >= 0) return n;
    errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
    return -1;
}

ssize_t lq_tls_recv(lq_tls *t, void *p, size_t n) {
    ssize_t got;
    do got = gnutls_record_recv(t->session, p, n);
    while (got == GNUTLS_E_INTERRUPTED || got == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (got == GNUTLS_E_PREMATURE_TERMINATION) return 0; // the socket's end without the session's: as an end
    return result(got);
}

ssize_t lq_tls_send(lq_tls *t, const void *p, size_t n) { return result(gnutls_record_send(t->session, p, n)); }
void lq_tls_end(lq_tls *t) { gnutls_bye(t->session, GNUTLS_SHUT_WR); }
