/* Runs of the program train_moe with a tiny model, and their loss curves. */
#ifndef LRMOE_TESTS_TRAIN_CURVE_H
#define LRMOE_TESTS_TRAIN_CURVE_H

enum {
  curveMaxSteps = 64
};

struct curve {
  int first; /* steps that the run made, from 1; 0: none */
  int last;
  double losses[curveMaxSteps + 1]; /* by step */
  double heldOut;
};

/* Writes the text that runs train on. */
void curveText(void);

/* Options of every run: the tiny model on two ranks, a row for every step. */
extern const char *const curveOptions;

/* Runs to the end and reads what it wrote. */
void curveRun(struct curve *curve, const char *options);

/* Reads the JSON of a run that has ended well. */
void curveRead(struct curve *curve);

/* The run ends with `code` and says why. */
void curveRefuses(const char *options, int code, const char *why);

/* Every step that part made is that of whole, to the last one, and so is the
 * held-out loss at the end. */
void curveSame(const struct curve *whole, const struct curve *part,
               double tolerance);

/* A shell command in the folder of the runs; static. */
const char *curveCommand(const char *command);

#endif
