/* Plans as bytes, to keep or replay them.
 *
 * A header and the plan's arrays, in the byte order of the machine (on another
 * one the magic does not match).  What follows from the arrays is not saved
 * but made again.  Load believes no number before it has checked it: the sizes
 * must give exactly the length at hand, so that no size in the data can make
 * it allocate more than it was given, and the arrays pass lrmoePlanVerifyAs,
 * because a check sum stops accidents only. */
#include "base/alloc.h"
#include "base/hash.h"
#include "planner/plan.h"

#include <string.h>

/* "LRMoPlan" on a little-endian machine. */
#define SAVED_MAGIC 0x6e616c506f4d524cu

enum {
  savedVersion = 6
};

struct savedHeader {
  uint64_t magic;
  uint64_t checkSum; /* of all that follows this field */
  uint64_t bytes;    /* of header and arrays */
  uint64_t hash;
  int64_t boundForward; /* do not follow from the arrays */
  int64_t boundKept;
  int64_t boundRetained;
  int64_t commNs;
  int64_t crossNodeBytes;
  int64_t constraintSlack;
  uint32_t version;
  int32_t numRanks;
  int32_t numExperts;
  int32_t numInstances;
  int32_t policy;
  int32_t homesMoved;
  int32_t changesForward;
  int32_t hasModel;
  int32_t constraint;
  int32_t constraintRank;
};

static uint64_t checkSum(const struct savedHeader *header, const void *arrays) {
  size_t skipped = offsetof(struct savedHeader, bytes);
  uint64_t sum = lrmoeHash(SAVED_MAGIC, (const char *)header + skipped,
                           sizeof *header - skipped);
  return lrmoeHash(sum, arrays, (size_t)header->bytes - sizeof *header);
}

lrmoeResult_t lrmoePlanSave(lrmoePlan_t plan, void *buffer, size_t *bytes) {
  LRMOE_REQUIRE(plan && bytes, "%s is NULL", plan ? "bytes" : "plan");
  if (!plan->demand)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "a plan from totals, without demand, cannot be saved");
  struct savedHeader header = {
      .magic = SAVED_MAGIC,
      .hash = plan->hash,
      .boundForward = plan->boundForward,
      .boundKept = plan->boundKept,
      .boundRetained = plan->boundRetained,
      .version = savedVersion,
      .numRanks = plan->numRanks,
      .numExperts = plan->numExperts,
      .numInstances = plan->numInstances,
      .policy = (int32_t)plan->policy,
      .homesMoved = plan->homesMoved,
      .changesForward = plan->changesForward,
      .commNs = plan->commNs,
      .crossNodeBytes = plan->crossNodeBytes,
      .constraintSlack = plan->constraintSlack,
      .hasModel = plan->hasModel,
      .constraint = (int32_t)plan->constraint,
      .constraintRank = plan->constraintRank,
  };
  char *next = buffer ? (char *)buffer + sizeof header : NULL;
  struct lrmoePlanPart parts[lrmoeNumPlanParts];
  lrmoePlanParts(plan, parts);
  header.bytes = sizeof header;
  for (int i = 0; i < lrmoeNumPlanParts; i++)
    header.bytes += parts[i].bytes;
  if (buffer) {
    LRMOE_REQUIRE(*bytes >= header.bytes,
                  "the plan takes %zu B and the buffer has %zu",
                  (size_t)header.bytes, *bytes);
    for (int i = 0; i < lrmoeNumPlanParts; next += parts[i++].bytes)
      memcpy(next, parts[i].data, parts[i].bytes);
    header.checkSum = checkSum(&header, (char *)buffer + sizeof header);
    memcpy(buffer, &header, sizeof header);
  }
  *bytes = (size_t)header.bytes;
  return lrmoeSuccess;
}

static lrmoeResult_t checkSizes(const struct savedHeader *header,
                                size_t bytes) {
  if (header->numRanks < 1 || header->numRanks > lrmoeMaxRanks ||
      header->numExperts < 1 || header->numExperts > lrmoeMaxExperts ||
      header->numInstances < header->numExperts)
    return LRMOE_FAIL(
        lrmoeCorrupt, "saved plan of %d ranks, %d experts and %d instances",
        header->numRanks, header->numExperts, header->numInstances);
  if (header->hasModel != 0 && header->hasModel != 1)
    return LRMOE_FAIL(lrmoeCorrupt, "saved plan has hasModel %d",
                      header->hasModel);
  size_t expected =
      sizeof *header + lrmoePlanArrayBytes(header->numRanks, header->numExperts,
                                           header->numInstances);
  if (header->hasModel)
    expected += (size_t)header->numRanks * sizeof(lrmoeRankMemory_t);
  if (header->bytes != bytes || expected != bytes)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved plan is %zu B long and should be %zu", bytes,
                      expected);
  return lrmoeSuccess;
}

static lrmoeResult_t checkHeader(const struct savedHeader *header,
                                 const char *arrays, size_t bytes) {
  if (header->magic != SAVED_MAGIC)
    return LRMOE_FAIL(lrmoeCorrupt, "not a saved plan: magic %016llx",
                      (unsigned long long)header->magic);
  if (header->version != savedVersion)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "saved plan of format %u; this library reads %d",
                      header->version, savedVersion);
  LRMOE_CHECK(checkSizes(header, bytes));
  if (header->checkSum != checkSum(header, arrays))
    return LRMOE_FAIL(lrmoeCorrupt, "saved plan has a wrong check sum");
  if (header->policy < lrmoePolicyFixed || header->policy > lrmoePolicyLocal)
    return LRMOE_FAIL(lrmoeCorrupt, "saved plan has policy %d", header->policy);
  if (header->homesMoved < 0 || header->homesMoved > header->numExperts ||
      (header->changesForward != 0 && header->changesForward != 1))
    return LRMOE_FAIL(
        lrmoeCorrupt, "saved plan has %d of %d homes moved, changesForward %d",
        header->homesMoved, header->numExperts, header->changesForward);
  return lrmoeSuccess;
}

static lrmoeResult_t checkModel(const struct savedHeader *header,
                                const struct lrmoePlan *plan) {
  if (header->constraint < lrmoeConstraintNone ||
      header->constraint > lrmoeConstraintWindow ||
      header->constraintRank < -1 ||
      header->constraintRank >= header->numRanks || header->commNs < 0 ||
      header->crossNodeBytes < 0)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved plan has constraint %d on rank %d, %lld ns and "
                      "%lld B",
                      header->constraint, header->constraintRank,
                      (long long)header->commNs,
                      (long long)header->crossNodeBytes);
  for (int32_t g = 0; header->hasModel && g < header->numRanks; g++) {
    const lrmoeRankMemory_t *m = &plan->memory[g];
    const int64_t parts[] = {m->forwardBytes,  m->savedBytes, m->replicaBytes,
                             m->backwardBytes, m->moveBytes,  m->routerBytes,
                             m->relayBytes};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
      if (parts[i] < 0 || parts[i] > m->peakBytes)
        return LRMOE_FAIL(lrmoeCorrupt,
                          "saved plan: rank %d needs %lld B for a part and "
                          "%lld B in all",
                          g, (long long)parts[i], (long long)m->peakBytes);
  }
  return lrmoeSuccess;
}

/* Bounds that no planner could have proven. */
static lrmoeResult_t checkBound(const char *name, int64_t bound, int64_t total,
                                const struct lrmoePlan *plan, int64_t most) {
  int64_t mean = total / plan->numRanks + (total % plan->numRanks != 0);
  if (bound < mean || bound > most)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved plan bounds %s pairs of a rank by %lld, mean %lld "
                      "and peak %lld",
                      name, (long long)bound, (long long)mean, (long long)most);
  return lrmoeSuccess;
}

static lrmoeResult_t finish(const struct savedHeader *header,
                            struct lrmoePlan *plan) {
  plan->policy = (lrmoePolicy_t)header->policy;
  plan->homesMoved = header->homesMoved;
  plan->changesForward = header->changesForward;
  plan->commNs = header->commNs;
  plan->crossNodeBytes = header->crossNodeBytes;
  plan->constraintSlack = header->constraintSlack;
  plan->constraint = (lrmoeConstraint_t)header->constraint;
  plan->constraintRank = header->constraintRank;
  LRMOE_CHECK(checkModel(header, plan));
  plan->boundForward = header->boundForward;
  plan->boundKept = header->boundKept;
  plan->boundRetained = header->boundRetained;
  LRMOE_CHECK(lrmoePlanVerifyAs(plan, lrmoeCorrupt));
  lrmoePlanFinish(plan);
  if (plan->boundForward != header->boundForward ||
      plan->boundKept != header->boundKept)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved plan of policy fixed has bounds that are not its "
                      "peaks");
  LRMOE_CHECK(checkBound("forward", header->boundForward, plan->pairs, plan,
                         plan->peakForward));
  LRMOE_CHECK(
      checkBound("kept", header->boundKept, plan->kept, plan, plan->peakKept));
  if (header->boundRetained && (header->boundRetained < plan->kept ||
                                header->boundRetained > plan->pairs))
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved plan keeps %lld of %lld pairs and its bound is "
                      "%lld",
                      (long long)plan->kept, (long long)plan->pairs,
                      (long long)header->boundRetained);
  if (plan->hash != header->hash)
    return LRMOE_FAIL(lrmoeCorrupt, "saved plan has a wrong hash");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePlanLoad(const void *buffer, size_t bytes,
                            lrmoePlan_t *plan) {
  LRMOE_REQUIRE(buffer && plan, "%s is NULL", buffer ? "plan" : "buffer");
  struct savedHeader header;
  if (bytes < sizeof header)
    return LRMOE_FAIL(lrmoeCorrupt, "saved plan is cut off after %zu B", bytes);
  memcpy(&header, buffer, sizeof header);
  const char *arrays = (const char *)buffer + sizeof header;
  LRMOE_CHECK(checkHeader(&header, arrays, bytes));

  size_t memoryBytes =
      header.hasModel ? (size_t)header.numRanks * sizeof(lrmoeRankMemory_t) : 0;
  const void *demand = arrays + memoryBytes;
  const struct lrmoePlanShape shape = {header.numRanks, header.numExperts,
                                       header.numInstances, demand,
                                       lrmoeDemandCopied};
  struct lrmoePlan *made = NULL;
  LRMOE_CHECK(lrmoePlanAllocate(&shape, &made));
  struct lrmoePlanPart parts[lrmoeNumPlanParts];
  made->hasModel = header.hasModel;
  lrmoePlanParts(made, parts);
  memcpy(made->memory, arrays, parts[0].bytes);
  memcpy(made->quotas, (const char *)demand + parts[1].bytes, parts[2].bytes);
  lrmoeResult_t result = finish(&header, made);
  if (result == lrmoeSuccess)
    *plan = made;
  else
    lrmoePlanDestroy(made);
  return result;
}
