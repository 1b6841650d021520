/* Which instance executes each kept pair: kernels/labels.h.
 *
 * Pairs of a source that move are alike but for their order, so that counts say
 * everything.  A block counts the kept pairs of a cell.  A warp then assigns
 * an expert's: lanes take instances, and learn which of an instance's cells
 * keep theirs; then sources come one after the other, pass by pass, and lanes
 * give each instance what it has room for.  At last a block for a cell writes
 * the labels: a pair's rank among the kept ones of its cell tells whether it
 * stays, and if not its rank among those that leave its source tells where it
 * goes.  Only integers are added: the order of threads does not show.
 *
 * The call may be captured into a graph. */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/labels.h"

using namespace lrmoeCuda;

/* Cells up to this length take a small block. */
constexpr int64_t shortCell = 512;

/* What the kernels tell each other. */
struct Assignment {
  int64_t *kept;   /* [numCells] */
  int64_t *stays;  /* [numCells] how many of them stay */
  int64_t *before; /* [numCells] of its source's, how many leave before */
  int64_t *leave;  /* [numExperts, G] */
  int64_t *given;  /* [numExperts, G] of those, how many have got a place */
  int64_t *begins; /* [G, numInstances] of those that leave a source, those */
  int64_t *ends;   /* from begins to ends go to the instance */
  int64_t *room;   /* [numInstances] */
};

static Assignment assignmentOf(const struct lrmoeLabels &args) {
  int64_t numShares = args.numRanks * args.numInstances;
  Assignment made;
  made.kept = args.work;
  made.stays = made.kept + args.numCells;
  made.before = made.stays + args.numCells;
  made.leave = made.before + args.numCells;
  made.given = made.leave + args.numExperts * args.numRanks;
  made.begins = made.given + args.numExperts * args.numRanks;
  made.ends = made.begins + numShares;
  made.room = made.ends + numShares;
  return made;
}

template <int threads>
__global__ void __launch_bounds__(threads)
    countKeptKernel(struct lrmoeLabels args, int64_t *kept) {
  LRMOE_SHARED(WarpSums, shared);
  int64_t cell = blockIdx.x;
  int64_t count = loadForWarp(args.cellCounts + cell);
  const uint8_t *flags = args.flags + loadForWarp(args.cellFirsts + cell);
  int64_t sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += threads)
    sum += lrmoeLoad(flags + i);
  sum = sumOfWarps(sumOfLanes(sum), threads / warpLanes, shared);
  if (threadIdx.x == 0) lrmoeStore(kept + cell, sum);
}

/* ---- Assignment ---- */

/* A lane for an instance: the first of its kept pairs stay. */
__device__ __forceinline__ void stayInOrder(const struct lrmoeLabels &args,
                                            const Assignment &to,
                                            int64_t instance) {
  int64_t share = __ldg(args.shares + instance);
  int64_t first = __ldg(args.instanceCells + instance);
  int64_t end = __ldg(args.instanceCells + instance + 1);
  int64_t left = share;
  for (int64_t cell = first; cell < end; cell++) {
    int64_t kept = __ldg(to.kept + cell);
    int64_t stays = kept < left ? kept : left;
    lrmoeStore(to.stays + cell, stays);
    left -= stays;
  }
  lrmoeStore(to.room + instance, share == INT64_MAX ? 0 : left);
}

/* A lane for a source: who leaves it. */
__device__ __forceinline__ void leaveInOrder(const struct lrmoeLabels &args,
                                             const Assignment &to,
                                             int64_t source) {
  int64_t first = __ldg(args.sourceCells + source);
  int64_t end = __ldg(args.sourceCells + source + 1);
  int64_t sum = 0;
  for (int64_t cell = first; cell < end; cell++) {
    lrmoeStore(to.before + cell, sum);
    sum += __ldg(to.kept + cell) - lrmoeLoad(to.stays + cell);
  }
  lrmoeStore(to.leave + source, sum);
  lrmoeStore(to.given + source, int64_t(0));
}

/* The first pass in which a source's pairs may go to a rank: in later ones
 * there is no room left on it for them. */
__device__ __forceinline__ int nearOf(const struct lrmoeLabels &args,
                                      int64_t source, int64_t rank) {
  if (rank == source) return lrmoeNearRank;
  if (__ldg(args.domains + rank) == __ldg(args.domains + source))
    return lrmoeNearDomain;
  if (__ldg(args.hosts + rank) == __ldg(args.hosts + source))
    return lrmoeNearHost;
  return lrmoeNearAny;
}

/* What leaves a source in a pass. */
struct Leaving {
  int64_t source;
  int pass;
  int64_t given;
  int64_t leave;
};

/* Gives it to a warp's instances in order; how many have a place then. */
__device__ __forceinline__ int64_t giveToLanes(const struct lrmoeLabels &args,
                                               const Assignment &to,
                                               const Leaving &from,
                                               int64_t instance, bool isOne) {
  bool isNear = isOne && nearOf(args, from.source,
                                __ldg(args.ranks + instance)) == from.pass;
  int64_t room = isNear ? lrmoeLoad(to.room + instance) : 0;
  int64_t upTo = from.given + sumUpToLane(room);
  int64_t begin = upTo - room < from.leave ? upTo - room : from.leave;
  int64_t end = upTo < from.leave ? upTo : from.leave;
  if (isNear) {
    int64_t share = from.source * args.numInstances + instance;
    lrmoeStore(to.begins + share, begin);
    lrmoeStore(to.ends + share, end);
    lrmoeStore(to.room + instance, room - (end - begin));
  }
  return __shfl_sync(allLanes, end, warpLanes - 1);
}

struct Instances {
  int64_t first;
  int64_t end;
};

/* One pass over all sources; a lane keeps to its instances. */
__device__ __forceinline__ void givePass(const struct lrmoeLabels &args,
                                         const Assignment &to, int64_t expert,
                                         const Instances &instances, int pass) {
  for (int64_t source = 0; source < args.numRanks; source++) {
    int64_t at = expert * args.numRanks + source;
    Leaving from = {source, pass, loadForWarp(to.given + at),
                    loadForWarp(to.leave + at)};
    if (from.given == from.leave) continue;
    for (int64_t i = instances.first; i < instances.end; i += warpLanes)
      from.given = giveToLanes(args, to, from, i + laneOf(),
                               i + laneOf() < instances.end);
    if (laneOf() == 0) lrmoeStore(to.given + at, from.given);
  }
}

__global__ void __launch_bounds__(warpLanes)
    assignKernel(struct lrmoeLabels args, Assignment to) {
  int64_t expert = blockIdx.x;
  int64_t numRanks = args.numRanks;
  Instances instances = {loadForWarp(args.instanceFirsts + expert),
                         loadForWarp(args.instanceFirsts + expert + 1)};
  for (int64_t i = instances.first + laneOf(); i < instances.end;
       i += warpLanes)
    stayInOrder(args, to, i);
  __syncwarp();
  for (int64_t s = laneOf(); s < numRanks; s += warpLanes)
    leaveInOrder(args, to, expert * numRanks + s);
  __syncwarp();
  for (int pass = lrmoeNearRank; pass < lrmoeNumNear; pass++)
    givePass(args, to, expert, instances, pass);
  __syncwarp();
  int64_t left = 0;
  for (int64_t s = laneOf(); s < numRanks; s += warpLanes)
    left += lrmoeLoad(to.leave + expert * numRanks + s) -
            lrmoeLoad(to.given + expert * numRanks + s);
  left = sumOfLanes(left);
  if (laneOf() == 0) lrmoeStore(args.missing + expert, left);
}

/* ---- Labels ---- */

/* A cell, as its pairs see it. */
struct Cell {
  Instances instances;
  int64_t owner;
  int64_t shares; /* of its source, in begins and ends */
  int64_t stays;
  int64_t before;
};

__device__ __forceinline__ Cell loadCell(const struct lrmoeLabels &args,
                                         const Assignment &to, int64_t cell) {
  int64_t expert = loadForWarp(args.cellExperts + cell);
  Cell made;
  made.instances = {loadForWarp(args.instanceFirsts + expert),
                    loadForWarp(args.instanceFirsts + expert + 1)};
  made.owner = loadForWarp(args.cellOwners + cell);
  made.shares = loadForWarp(args.cellSources + cell) * args.numInstances;
  made.stays = loadForWarp(to.stays + cell);
  made.before = loadForWarp(to.before + cell);
  return made;
}

/* The label of the cell's kept pair number `rank`. */
__device__ __forceinline__ int64_t labelOf(const struct lrmoeLabels &args,
                                           const Assignment &to,
                                           const Cell &cell, int64_t rank) {
  int64_t goes = cell.owner;
  if (rank < cell.stays) {
    if (!args.comesWithX) return lrmoeLabelStayed;
  } else {
    int64_t number = cell.before + rank - cell.stays;
    for (int64_t i = cell.instances.first; i < cell.instances.end; i++)
      if (number < __ldg(to.ends + cell.shares + i) &&
          number >= __ldg(to.begins + cell.shares + i))
        goes = i;
  }
  return lrmoeLabelMoved + goes - cell.instances.first;
}

template <int threads>
__global__ void __launch_bounds__(threads)
    labelKernel(struct lrmoeLabels args, Assignment to) {
  LRMOE_SHARED(WarpSums, shared);
  Part part = partOfWarp<threads>(loadForWarp(args.cellCounts + blockIdx.x));
  uint8_t *flags = args.flags + loadForWarp(args.cellFirsts + blockIdx.x);
  Cell cell = loadCell(args, to, blockIdx.x);
  int64_t count = 0;
#pragma unroll 4
  for (int64_t i = part.begin + laneOf(); i < part.end; i += warpLanes)
    count += lrmoeLoad(flags + i);
  int64_t rank = sumOfWarpsBefore(sumOfLanes(count), shared);
  rank = __shfl_sync(allLanes, rank, 0);
  uint32_t lower = (1u << laneOf()) - 1;
  for (int64_t first = part.begin; first < part.end; first += warpLanes) {
    int64_t i = first + laneOf();
    bool isKept = i < part.end && lrmoeLoad(flags + i) != 0;
    uint32_t kept = __ballot_sync(allLanes, isKept);
    if (isKept)
      lrmoeStore(flags + i, static_cast<uint8_t>(labelOf(
                                args, to, cell, rank + __popc(kept & lower))));
    rank += __popc(kept);
  }
}

template <int threads>
static lrmoeResult_t runLabels(const struct lrmoeLabels &args, dim3 cells,
                               lrmoeStream_t stream) {
  Assignment to = assignmentOf(args);
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(countKeptKernel<threads>, cells, dim3(threads),
                                sizeof(WarpSums), stream, args, to.kept));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(assignKernel,
                                dim3(static_cast<unsigned>(args.numExperts)),
                                dim3(warpLanes), 0, stream, args, to));
  LRMOE_CUDA_CHECK(LRMOE_LAUNCH(labelKernel<threads>, cells, dim3(threads),
                                sizeof(WarpSums), stream, args, to));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCudaLabelPairs(const struct lrmoeLabels *args,
                                  lrmoeStream_t stream) {
  size_t bytes = static_cast<size_t>(args->numExperts) * sizeof *args->missing;
  dim3 cells;
  LRMOE_CHECK(gridFor(args->numCells, 1, &cells));
  if (args->numCells == 0) return lrmoeCudaClear(args->missing, bytes, stream);
  Assignment to = assignmentOf(*args);
  bytes = static_cast<size_t>(args->numRanks * args->numInstances) *
          sizeof *to.ends;
  LRMOE_CHECK(lrmoeCudaClear(to.ends, bytes, stream));
  if (args->maxPairs <= shortCell) return runLabels<64>(*args, cells, stream);
  return runLabels<512>(*args, cells, stream);
}
