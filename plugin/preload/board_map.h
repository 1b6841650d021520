/* The board's memory, between card.c and board.c. */
#ifndef LRMOE_PLUGIN_PRELOAD_BOARD_MAP_H
#define LRMOE_PLUGIN_PRELOAD_BOARD_MAP_H

#include "plugin/preload/board.h"

enum {
  lrmoeBoardMaxRanks = 1024
};

/* A new board's file, -1 if there is no memory for it. */
int lrmoeBoardFile(int numRanks);

/* NULL, for a file that is no board or cannot be mapped. */
struct lrmoeBoard *lrmoeBoardMap(int file, int numRanks, int rank);

/* Withdraws in a board that could not be mapped. */
void lrmoeBoardRefuse(int file);

#endif
