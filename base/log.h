/* The log: lines on stderr, at most as detailed as LRMOE_DEBUG asks for. */
#ifndef LRMOE_BASE_LOG_H
#define LRMOE_BASE_LOG_H

enum lrmoeLogLevel {
  lrmoeLogNone,
  lrmoeLogWarn,
  lrmoeLogInfo,
  lrmoeLogTrace
};

/* Writes one line "lrmoe pid: message" if LRMOE_DEBUG is at least `level`. */
void lrmoeLog(enum lrmoeLogLevel level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
