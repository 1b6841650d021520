/* Recorded machines, where they are (../shared/data beside the source tree, or
 * LRMOE_SHARED_DATA): one line per file. */
#ifndef LRMOE_TESTS_TOPO_RECORDED_H
#define LRMOE_TESTS_TOPO_RECORDED_H

#include "topo/open.h"

/* What the public documents of the machine say. */
struct recorded {
  const char *file;
  int ranks;
  int domains; /* NVLink or xGMI */
  /* Rank 0 to rank 1, and to the last: class, MB/s. */
  lrmoeLinkClass_t near;
  int64_t nearMegabytes;
  lrmoeLinkClass_t far;
  int64_t farMegabytes;
  int sharers;              /* ranks that have rank 0's first port too */
  int64_t networkMegabytes; /* between rank 0s of two such hosts; 0: guessed,
                               because the file does not say */
};

struct refusedFile {
  const char *file;
  lrmoeResult_t result;
  const char *message; /* part of it */
};

/* Path of a folder of the recordings. */
int recordedFolder(const char *folder, char *path, size_t bytes);

/* Path of a recorded file in a folder, or 0 with a message where it is not. */
int recordedPath(const char *folder, const char *file, char *path,
                 size_t bytes);

#endif
