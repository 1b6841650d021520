/* Chrome traces: see trace.h. */
#include "base/trace.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
  maxPath = 4096,
  maxEvents = 2048,
  maxWaitNs = 1000000000 /* so much at most is lost when a rank is killed */
};

struct lrmoeTrace {
  char path[maxPath];
  int rank;
  int numRanks;
  int track;    /* of the process's communicators */
  int isNamed;  /* the file knows whose events these are */
  int isBroken; /* the file cannot be written */
  int64_t flushedNs;
  int numEvents;
  struct lrmoeTraceEvent events[maxEvents];
};

/* ---- The file ---- */

/* What %r and %h stand for; NULL: nothing known. */
static const char *valueOf(char letter, int rank, char *text, size_t bytes) {
  if (letter == '%') return "%";
  if (letter == 'r') {
    snprintf(text, bytes, "%d", rank);
    return text;
  }
  if (letter != 'h' || gethostname(text, bytes)) return NULL;
  text[bytes - 1] = '\0';
  return text;
}

static lrmoeResult_t expandPath(const char *pattern, int rank, char *path) {
  char text[256];
  size_t used = 0;
  for (const char *at = pattern; *at; at++) {
    const char one[2] = {*at, '\0'};
    const char *part = one;
    if (*at == '%') part = valueOf(*++at, rank, text, sizeof text);
    LRMOE_REQUIRE(part, "LRMOE_TRACE=%s: only %%r, %%h and %%%% are known",
                  pattern);
    size_t length = strlen(part);
    LRMOE_REQUIRE(used + length < maxPath, "LRMOE_TRACE is too long");
    memcpy(path + used, part, length + 1);
    used += length;
  }
  return lrmoeSuccess;
}

/* A communicator has a track for the host and one for its device. */
static int trackOf(const struct lrmoeTrace *trace, int isDevice) {
  return 2 * trace->track + isDevice;
}

static void writeName(const struct lrmoeTrace *trace, FILE *out) {
  fprintf(out,
          "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
          "\"args\":{\"name\":\"rank %d of %d\"}},\n",
          (int)getpid(), trace->rank, trace->numRanks);
  for (int isDevice = 0; isDevice < 2; isDevice++)
    fprintf(out,
            "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
            "\"args\":{\"name\":\"%s\"}},\n",
            (int)getpid(), trackOf(trace, isDevice),
            isDevice ? "device" : "host");
}

static void writeEvent(const struct lrmoeTrace *trace,
                       const struct lrmoeTraceEvent *event, FILE *out) {
  int64_t ns = event->endNs - event->startNs;
  fprintf(out,
          "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,"
          "\"tid\":%d,\"ts\":%lld.%03lld,\"dur\":%lld.%03lld",
          event->name, event->isDevice ? "device" : "host", (int)getpid(),
          trackOf(trace, event->isDevice), (long long)event->startNs / 1000,
          (long long)event->startNs % 1000, (long long)ns / 1000,
          (long long)ns % 1000);
  if (event->bytes >= 0)
    fprintf(out, ",\"args\":{\"bytes\":%lld}", (long long)event->bytes);
  fputc('}', out);
}

/* The end of every file of ours; the next rank writes over it. */
static const char ending[] = "\n]\n";

/* Where to go on: 0 for an empty file, -1 with errno for one that is not a
 * trace, or was cut off. */
static off_t placeOf(int fd) {
  char last[sizeof ending] = "";
  const off_t length = sizeof ending - 1;
  off_t size = lseek(fd, 0, SEEK_END);
  if (size <= 0) return size;
  if (size >= length && pread(fd, last, (size_t)length, size - length) < 0)
    return -1;
  if (!strcmp(last, ending)) return size - length;
  errno = EEXIST;
  return -1;
}

static int writeText(int fd, const char *text, size_t bytes) {
  off_t place = placeOf(fd);
  if (place < 0) return -1;
  const char *head = place ? ",\n" : "[\n";
  if (pwrite(fd, head, 2, place) != 2) return -1;
  place += 2;
  while (bytes) {
    ssize_t written = pwrite(fd, text, bytes, place);
    if (written <= 0) return -1;
    place += written;
    text += written;
    bytes -= (size_t)written;
  }
  return 0;
}

static int append(const char *path, const char *text, size_t bytes) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  int failed = flock(fd, LOCK_EX) || writeText(fd, text, bytes);
  int error = errno;
  close(fd);
  errno = error;
  return failed ? -1 : 0;
}

static int appendEvents(struct lrmoeTrace *trace) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return -1;
  if (!trace->isNamed) writeName(trace, out);
  for (int i = 0; i < trace->numEvents; i++) {
    if (i) fputs(",\n", out);
    writeEvent(trace, &trace->events[i], out);
  }
  fputs(ending, out);
  int failed = fclose(out) || append(trace->path, text, bytes);
  int error = errno;
  free(text);
  errno = error;
  trace->isNamed |= !failed;
  return failed;
}

/* ---- Calls ---- */

lrmoeResult_t lrmoeTraceOpen(int rank, int numRanks,
                             struct lrmoeTrace **trace) {
  static atomic_int numTracks;
  const char *pattern = lrmoeParamGetText(lrmoeParamTrace);
  struct lrmoeTrace *made = NULL;
  *trace = NULL;
  if (!*pattern) return lrmoeSuccess;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->rank = rank;
  made->numRanks = numRanks;
  made->flushedNs = lrmoeNowNs();
  made->track = atomic_fetch_add(&numTracks, 1);
  lrmoeResult_t result = expandPath(pattern, rank, made->path);
  if (result == lrmoeSuccess)
    *trace = made;
  else
    lrmoeFree(made);
  return result;
}

void lrmoeTraceFlush(struct lrmoeTrace *trace) {
  if (!trace->isBroken && trace->numEvents && appendEvents(trace)) {
    trace->isBroken = 1;
    lrmoeLog(lrmoeLogWarn, "LRMOE_TRACE: %s: %s", trace->path,
             errno == EEXIST ? "there is such a file, and it is not a trace "
                               "that was written to its end"
                             : strerror(errno));
  }
  trace->numEvents = 0;
  trace->flushedNs = lrmoeNowNs();
}

void lrmoeTraceAdd(struct lrmoeTrace *trace,
                   const struct lrmoeTraceEvent *event) {
  if (trace->isBroken) return;
  trace->events[trace->numEvents++] = *event;
  if (trace->numEvents == maxEvents ||
      event->endNs - trace->flushedNs > maxWaitNs)
    lrmoeTraceFlush(trace);
}

void lrmoeTraceClose(struct lrmoeTrace *trace) {
  if (trace) lrmoeTraceFlush(trace);
  lrmoeFree(trace);
}
