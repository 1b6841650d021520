/* Recorded machines, where they are (../shared/data beside the source tree, or
 * LRMOE_SHARED_DATA): one line per file. */
#ifndef LRMOE_TESTS_TOPO_RECORDED_H
#define LRMOE_TESTS_TOPO_RECORDED_H

#include "topo/open.h"

/* A file that is refused, and a part of what is said. */
struct refusedFile {
  const char *file;
  lrmoeResult_t result;
  const char *message;
};

/* Rows that begin with the name of a file. */
struct recordedTable {
  const void *rows;
  size_t rowBytes;
  size_t numRows;
};
#define RECORDED_TABLE(rows) \
  { rows, sizeof *(rows), sizeof(rows) / sizeof *(rows) }

/* Path of a folder of the recordings. */
int recordedFolder(const char *folder, char *path, size_t bytes);

/* Path of a recorded file in a folder, or 0 with a message where it is not. */
int recordedPath(const char *folder, const char *file, char *path,
                 size_t bytes);

/* Opens a file of a folder and asserts how many ranks and NVLink domains it
 * has; NULL where it is not there. */
lrmoeTopology_t recordedOpen(const char *folder, const char *file, int ranks,
                             int domains);

/* Asserts the way from rank 0 to another: MB/s, rounded down. */
void recordedWay(lrmoeTopology_t topology, const char *file, int to,
                 lrmoeLinkClass_t linkClass, int64_t megabytes);

/* Asserts that the file, where it is, is refused as it should be. */
void recordedRefused(const char *folder, const struct refusedFile *refused);

/* Calls visit with the path and the name of each XML file of a folder; how many
 * there are, 0 with a message where the folder is not. */
int recordedEach(const char *folder,
                 void (*visit)(void *context, const char *path,
                               const char *name),
                 void *context);

/* Asserts that each XML file of a folder has a row. */
void recordedAllListed(const char *folder, const struct recordedTable *tables,
                       int numTables);

#endif
