/* The machine graph: what every reader (NCCL XML, hwloc XML, the live machine,
 * synthetic strings) fills and what the model is computed from.
 *
 * Nodes form a forest.  A host is a root; below it stand NUMA nodes, below
 * these PCI bridges, GPUs and NICs, below a NIC its network ports:
 *
 *     host > numa > bridge* > gpu | nic > port         switch (a root too)
 *
 * Each node carries the figure of the link to its parent: for a bridge, GPU or
 * NIC its PCI link; for a NUMA node its share of the CPU interconnect; for a
 * port the network beyond it.  What is no tree stands in links: NVLink, xGMI,
 * C2C, PCI peer links.  All rates are bytes/s in one direction, at most
 * lrmoeMaxRate; 0 says that the source does not know: the model then guesses,
 * says so in a note and marks what follows from it.
 *
 * Readers add nodes parent first and in any order of siblings: the model does
 * not depend on it.  Nothing here has a fixed number. */
#ifndef LRMOE_TOPO_MACHINE_H
#define LRMOE_TOPO_MACHINE_H

#include "base/result.h"

#include <stdbool.h>

enum {
  lrmoeNameBytes = 64, /* longer names are cut */
  lrmoeBusBytes = 20
};

/* 100 TB/s: what is above was read wrongly. */
#define LRMOE_MAX_RATE ((int64_t)100000000000000)

/* PCI address: domain << 16 | bus << 8 | device << 3 | function. */
#define LRMOE_NO_BUS ((int64_t)-1)

struct lrmoeRate {
  int64_t bytesPerSecond; /* one direction; 0: unknown */
  int64_t latencyNs;      /* one way; 0: the model's default for the kind */
  bool guessed;           /* not stated by the source, or not credible */
};

/* Fields that a kind does not use keep what lrmoeMachineNode gives them. */
struct lrmoeNode {
  lrmoeNodeKind_t kind;
  int32_t parent; /* node, -1 for a host and a switch */
  int32_t host;   /* node of the host; itself for a host, -1 for a switch that
                     joins hosts.  Set by lrmoeMachineAdd from the parent;
                     the caller's value counts for a switch only. */
  char name[lrmoeNameBytes]; /* as the source calls it, "" where it does not */
  int64_t bus;               /* bridge, gpu, nic: PCI address, LRMOE_NO_BUS */
  char busText[lrmoeBusBytes]; /* the same as text, set by lrmoeMachineAdd */
  struct lrmoeRate up;         /* link to the parent; of a port: the network */
  int32_t index;               /* numa: OS index, -1 unknown; gpu: driver's
                                number, -1; port: port number, -1 */
  int32_t partition;           /* gpu: part of a divided device, from 0 */
  int32_t rank;                /* gpu: rank that the source gives it, -1 none;
                                0 .. GPUs of the source - 1 */
  int32_t arch;                /* gpu: 70 for sm_70; AMD: 0x90a for gfx90a; 0 */
  int32_t numCores;            /* numa: cores that ranks may use, 0 unknown */
  int32_t package;             /* numa: socket, -1 unknown */
  uint64_t guid;               /* port: ports of one host with the same guid,
                                not 0, are one ASIC and share its PCI link */
  uint64_t hostId;             /* host: hash of its identity, 0 unknown */
};

enum lrmoeWireKind {
  lrmoeWireNvlink,  /* gpu - gpu, gpu - switch */
  lrmoeWireXgmi,    /* gpu - gpu */
  lrmoeWireC2c,     /* gpu - numa */
  lrmoeWirePciPeer, /* bridge - bridge */
  lrmoeWireCpu,     /* numa - numa, where the source states it per pair */
  lrmoeNumWireKinds
};

/* One direction of a link beside the tree.  Both directions are added. */
struct lrmoeWire {
  enum lrmoeWireKind kind;
  int32_t from;
  int32_t to;
  int32_t count;         /* physical links bundled here; 0 unknown */
  struct lrmoeRate rate; /* of all of them together */
};

struct lrmoeNote {
  int32_t node; /* what it is about, -1: the whole machine */
  char *text;   /* owned */
};

struct lrmoeMachine {
  struct lrmoeNode *nodes;
  struct lrmoeWire *wires;
  struct lrmoeNote *notes;
  int32_t numNodes;
  int32_t numWires;
  int32_t numNotes;
  int32_t maxNodes; /* room */
  int32_t maxWires;
  int32_t maxNotes;
};

/* "GPU 0000:07:00.0", "port mlx5_0", for messages; room of lrmoeNameBytes. */
void lrmoeNodePrint(const struct lrmoeNode *node, char *text);

/* Start with {0}; free in any state. */
void lrmoeMachineFree(struct lrmoeMachine *machine);

/* A node of that kind under parent with nothing known about it. */
struct lrmoeNode lrmoeMachineNode(lrmoeNodeKind_t kind, int32_t parent);

/* Adds a copy.  The parent must be there and of a kind that may hold it (an
 * lrmoeInternalError: readers check their source first). */
lrmoeResult_t lrmoeMachineAdd(struct lrmoeMachine *machine,
                              const struct lrmoeNode *node, int32_t *index);

/* Adds one direction.  Wires of one kind between the same two are parallel;
 * lrmoeMachineComplete makes them one. */
lrmoeResult_t lrmoeMachineConnect(struct lrmoeMachine *machine,
                                  const struct lrmoeWire *wire);

/* Adds both directions, which are alike. */
lrmoeResult_t lrmoeMachineConnectBoth(struct lrmoeMachine *machine,
                                      struct lrmoeWire wire);

/* Adds a note. */
lrmoeResult_t lrmoeMachineNote(struct lrmoeMachine *machine, int32_t node,
                               const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends `copies` copies of what `other` holds: several hosts joined.  Notes
 * come once.  Ranks of GPUs count on from the number of GPUs that are there.
 * With more than one copy hosts lose their hostId; with one, hosts whose
 * hostId is there already are refused by name. */
lrmoeResult_t lrmoeMachineJoin(struct lrmoeMachine *machine,
                               const struct lrmoeMachine *other,
                               int32_t copies);

/* The node of a bus address in a host, and partition for GPUs; -1 if none. */
int32_t lrmoeMachineFind(const struct lrmoeMachine *machine, int32_t host,
                         int64_t bus, int32_t partition);

/* Gives nodes the numbers that the machine and not its source asks for: hosts
 * as they were, below each its tree, siblings by bus address.   Done by
 * lrmoeMachineComplete. */
lrmoeResult_t lrmoeMachineSort(struct lrmoeMachine *machine);

/* Puts a guess where a rate is 0 or cannot be meant, with a note: a bridge as
 * fast as what is below it, a device as its slot, and so on.  Afterwards every
 * rate but that of hosts and switches is positive, and wires are sorted by
 * from, to and kind, without parallel ones.  Before lrmoeMachineJoin. */
lrmoeResult_t lrmoeMachineComplete(struct lrmoeMachine *machine);

/* Everything that the model relies on; lrmoeInvalidArgument names the first
 * thing that is wrong: duplicate bus addresses or ranks, a link without its
 * way back, more NVLinks than any GPU has, rates out of all proportion, no
 * device for a rank.  `source` begins the message. */
lrmoeResult_t lrmoeMachineCheck(const struct lrmoeMachine *machine,
                                const char *source);

/* "0000:07:00.0", any case, with or without domain or function, up to 8 hex
 * digits of domain; LRMOE_NO_BUS if the text is no address. */
int64_t lrmoeBusParse(const char *text);
/* Writes it as dddd:bb:dd.f; room of lrmoeBusBytes. */
void lrmoeBusPrint(int64_t bus, char *text);

/* What a kind of link moves, by the documents of its maker, in bytes/s, one
 * direction; 0 if unknown.  PCI: rate is in GT/s times ten, e.g. 160. */
int64_t lrmoePciRate(int32_t tenthsOfGt, int32_t width);
int64_t lrmoeNvlinkRate(int32_t arch); /* one NVLink of an sm_<arch> */
int64_t lrmoeXgmiRate(int32_t arch);   /* one xGMI link of a gfx<arch> */

/* A processor's share of the interconnect between NUMA nodes: experience more
 * than documents, so always a guess.  cpuid's family and model as numbers. */
struct lrmoeCpu {
  const char *arch;   /* "x86_64", "arm64", "ppc64"; NULL unknown */
  const char *vendor; /* "GenuineIntel", "AuthenticAMD"; NULL unknown */
  int64_t family;
  int64_t model;
};
int64_t lrmoeCpuRate(const struct lrmoeCpu *cpu);

#endif
