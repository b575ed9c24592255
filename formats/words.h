// words.h: numbers as people read them: "1.41 GB", "3.2 s", "20m 05s", "7.2M".
#ifndef LQ_WORDS_H
#define LQ_WORDS_H

typedef struct lq_words { char text[32]; } lq_words;
lq_words lq_words_bytes(double bytes); // decimal units
lq_words lq_words_count(double n);
lq_words lq_words_time(double seconds);
#endif
