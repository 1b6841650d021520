/* Experts of one shape: the context, and how a call is run (run.h).
 *
 * A call's work is on the engine's side streams between an event that they
 * wait for and events that the caller's stream waits for.  Tiles are as large
 * as a slot's share of scratch allows, and large enough for a GEMM to fill the
 * device: 16384 rows at the paper's shape.
 *
 * Expert calls cannot be captured into a graph: row counts are the host's,
 * frozen at capture, and scratch may grow. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/run.h"

#include <cstdlib>
#include <cstring>

/* Of a batch; a slot's scratch stays below maxSlotBytes if minTileRows do. */
static const int64_t maxTileRows = 16384;
static const int64_t minTileRows = 256;
static const int64_t maxSlotBytes = 256 << 20;
static const int64_t spaceAlignment = 256;

static int64_t rowBytes(const struct lrmoeExpertContext *context) {
  const struct lrmoeExpertShape *shape = &context->shape;
  return (2 * shape->hidden + shape->ffn + context->fc1Width) *
         context->elementBytes;
}

static int64_t chooseTileRows(const struct lrmoeExpertContext *context) {
  int64_t tileRows = maxTileRows;
  while (tileRows > minTileRows && tileRows * rowBytes(context) > maxSlotBytes)
    tileRows /= 2;
  return tileRows;
}

/* The caller's C may have any number there, which C++ need not look at. */
template <class Enumeration>
static int numberOf(const Enumeration &value) {
  int number = 0;
  static_assert(sizeof number == sizeof value, "enumerations are int's size");
  memcpy(&number, &value, sizeof number);
  return number;
}

static lrmoeResult_t checkShape(const struct lrmoeExpertShape *shape) {
  LRMOE_CUDA_REQUIRE(shape->hidden > 0 && shape->hidden % 8 == 0 &&
                         shape->hidden <= INT32_MAX / 8 && shape->ffn > 0 &&
                         shape->ffn % 8 == 0 && shape->ffn <= INT32_MAX / 16,
                     "an expert of hidden %lld, ffn %lld: the CUDA backend "
                     "takes multiples of 8",
                     static_cast<long long>(shape->hidden),
                     static_cast<long long>(shape->ffn));
  int type = numberOf(shape->type);
  int activation = numberOf(shape->activation);
  int convention = numberOf(shape->convention);
  LRMOE_CUDA_REQUIRE(type == lrmoeBfloat16 || type == lrmoeFloat16 ||
                         type == lrmoeFloat32,
                     "data type %d: rows are bf16, fp16 or fp32", type);
  LRMOE_CUDA_REQUIRE(activation == lrmoeSwiglu || activation == lrmoeGelu,
                     "no activation %d", activation);
  LRMOE_CUDA_REQUIRE(convention == lrmoeWeightPost ||
                         convention == lrmoeWeightPre,
                     "no weight convention %d", convention);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaExpertOpen(const struct lrmoeExpertShape *shape,
                                  const char *gemm,
                                  struct lrmoeExpertContext **context) {
  LRMOE_CHECK(checkShape(shape));
  const struct lrmoeCudaGemmTable *table = NULL;
  LRMOE_CHECK(lrmoeCudaGemmFind(gemm, &table));
  struct lrmoeExpertContext *made =
      static_cast<struct lrmoeExpertContext *>(calloc(1, sizeof *made));
  if (!made) return lrmoeCudaFail(lrmoeOutOfMemory, "no memory for experts");
  made->shape = *shape;
  made->gemm = table;
  made->fc1Width = (shape->activation == lrmoeSwiglu ? 2 : 1) * shape->ffn;
  made->elementBytes = shape->type == lrmoeFloat32 ? 4 : 2;
  made->tileRows = chooseTileRows(made);
  lrmoeResult_t result = lrmoeEngineAcquire(table, &made->engine);
  if (result != lrmoeSuccess) {
    free(made);
    return result;
  }
  *context = made;
  return lrmoeSuccess;
}

void lrmoeCudaExpertClose(struct lrmoeExpertContext *context) {
  if (!context) return;
  lrmoeEngineRelease(context->engine);
  lrmoeExpertPlanFree(&context->plan);
  free(context);
}

/* Shared by all contexts of the device and GEMM. */
int64_t lrmoeCudaExpertScratchBytes(const struct lrmoeExpertContext *context) {
  return lrmoeEngineScratchBytes(context->engine);
}

static char *carve(char *base, int64_t bytes, int64_t *used) {
  char *at = base ? base + *used : NULL;
  *used += (bytes + spaceAlignment - 1) / spaceAlignment * spaceAlignment;
  return at;
}

/* Rows that scratch is for. */
struct extent {
  int64_t numRows;  /* of a batch */
  int64_t keptRows; /* of phi and fc1 */
};

/* Lays scratch out (without a base, only to know how large it is) and returns
 * its bytes.  What is kept comes first: it lies the same for all batches. */
static int64_t layOut(const struct lrmoeExpertContext *context,
                      const struct lrmoePass *pass, struct extent extent,
                      char *base, struct lrmoeSpace *space) {
  int64_t hidden =
      extent.numRows * context->shape.hidden * context->elementBytes;
  int64_t ffn = extent.keptRows * context->shape.ffn * context->elementBytes;
  int64_t fc1 = extent.keptRows * context->fc1Width * context->elementBytes;
  int64_t used = 0;
  space->phi = carve(base, ffn, &used);
  space->fc1 = carve(base, fc1, &used);
  space->rows = carve(base, hidden, &used);
  space->kept = pass->needsKept ? carve(base, hidden, &used) : NULL;
  return used;
}

/* Row counts differ from step to step: by powers of two, scratch soon stops
 * growing. */
static int64_t roundRowsUp(int64_t numRows, int64_t tileRows) {
  int64_t rounded = 1;
  while (rounded < numRows)
    rounded *= 2;
  return rounded < tileRows ? rounded : tileRows;
}

/* All rows of a slot, which may be many, by sixteenths of a power of two. */
static int64_t roundAllRowsUp(int64_t numRows) {
  int64_t step = 1;
  while (16 * step < numRows)
    step *= 2;
  return (numRows + step - 1) / step * step;
}

static lrmoeResult_t reserveSlots(struct lrmoeExpertContext *context,
                                  const struct lrmoePass *pass) {
  const struct lrmoeExpertPlan *plan = &context->plan;
  for (int i = 0; i < plan->numSlots; i++) {
    struct lrmoeSpace space;
    int64_t rows = roundRowsUp(plan->slotRows[i], context->tileRows);
    const struct extent extent = {
        rows, pass->runLater ? roundAllRowsUp(plan->allRows[i]) : rows};
    LRMOE_CHECK(lrmoeSlotReserve(&context->engine->slots[i],
                                 layOut(context, pass, extent, NULL, &space)));
  }
  return lrmoeSuccess;
}

static struct lrmoeRun runOf(struct lrmoeExpertContext *context,
                             const struct lrmoePass *pass,
                             const struct lrmoeBatch *batch) {
  const struct lrmoeExpertPlan *plan = &context->plan;
  struct lrmoeRun run = {context,
                         pass->args,
                         batch,
                         plan->tiles + batch->firstTile,
                         &context->engine->slots[batch->slot],
                         {NULL, NULL, NULL, NULL}};
  struct extent extent = {batch->numRows, batch->numRows};
  if (pass->runLater) extent.keptRows = plan->allRows[batch->slot];
  layOut(context, pass, extent, run.slot->scratch, &run.space);
  if (!pass->runLater) return run;
  int64_t first = batch->firstRow * context->elementBytes;
  run.space.phi += first * context->shape.ffn;
  run.space.fc1 += first * context->fc1Width;
  return run;
}

static lrmoeResult_t runBatches(struct lrmoeExpertContext *context,
                                const struct lrmoePass *pass, int isLater) {
  const struct lrmoeExpertPlan *plan = &context->plan;
  for (int64_t i = 0; i < plan->numBatches; i++) {
    struct lrmoeRun run = runOf(context, pass, &plan->batches[i]);
    LRMOE_CHECK(isLater ? pass->runLater(&run) : pass->run(&run));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t runPhases(struct lrmoeExpertContext *context,
                               const struct lrmoePass *pass,
                               lrmoeStream_t stream) {
  struct lrmoeEngine *engine = context->engine;
  int numSlots = context->plan.numSlots;
  LRMOE_CHECK(runBatches(context, pass, 0));
  LRMOE_CHECK(lrmoeEngineJoin(engine, numSlots, stream));
  if (!pass->runLater) return lrmoeSuccess;
  LRMOE_CHECK(runBatches(context, pass, 1));
  return lrmoeEngineMark(engine, numSlots, pass->event);
}

static lrmoeResult_t recordNothing(const struct lrmoePass *pass,
                                   lrmoeStream_t stream) {
  if (pass->runLater) LRMOE_CUDA_CHECK(cudaEventRecord(pass->event, stream));
  return lrmoeSuccess;
}

/* With the engine entered.  The caller's stream waits for what was enqueued
 * even if not all could be. */
static lrmoeResult_t runPlan(struct lrmoeExpertContext *context,
                             int32_t numEntries, const struct lrmoePass *pass,
                             lrmoeStream_t stream) {
  struct lrmoeEngine *engine = context->engine;
  struct lrmoeExpertPlan *plan = &context->plan;
  const struct lrmoePlanLimits limits = {
      engine->numSlots, context->gemm->mixesWeights, context->tileRows};
  LRMOE_CHECK(lrmoeExpertPlanMake(plan, numEntries, &limits));
  if (plan->numSlots == 0) return recordNothing(pass, stream);
  LRMOE_CHECK(reserveSlots(context, pass));
  LRMOE_CHECK(lrmoeEngineFork(engine, plan->numSlots, stream));
  lrmoeResult_t result = runPhases(context, pass, stream);
  if (result != lrmoeSuccess) lrmoeEngineSettle(engine, plan->numSlots, stream);
  return result;
}

lrmoeResult_t lrmoeExpertRun(struct lrmoeExpertContext *context,
                             int32_t numEntries, const struct lrmoePass *pass,
                             lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeEngineEnter(context->engine));
  lrmoeResult_t result = runPlan(context, numEntries, pass, stream);
  lrmoeEngineLeave(context->engine);
  return result;
}
