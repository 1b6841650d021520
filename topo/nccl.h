/* Inside the reader of NCCL's topology XML: nccl_read.c walks the tree of
 * processors and PCI devices, nccl_device.c reads what hangs on it. */
#ifndef LRMOE_TOPO_NCCL_H
#define LRMOE_TOPO_NCCL_H

#include "topo/machine.h"
#include "topo/xml.h"

enum lrmoeNcclKind {
  lrmoeNcclDump,     /* written by NCCL: gpu and net elements */
  lrmoeNcclTemplate, /* of a virtual machine: bare PCI devices by class */
  lrmoeNcclHint      /* bus addresses only */
};

/* The best network interface of a host that is no PCI device. */
struct lrmoeNcclInterface {
  const xmlNode *net; /* NULL: none */
  int64_t speed;
  int32_t count; /* distinct names are not told apart */
};

struct lrmoeNccl {
  const char *source;
  struct lrmoeMachine *machine;
  enum lrmoeNcclKind kind;
  int32_t numHosts;
  uint64_t *hashes;                      /* [numHosts] ascending */
  int32_t *hosts;                        /* [numHosts] nodes */
  int32_t *switches;                     /* [numHosts] nodes, -1: none yet */
  bool *hasPort;                         /* [numHosts] PCI NICs */
  struct lrmoeNcclInterface *interfaces; /* [numHosts] */
  bool saidUnknown; /* an element that is not known has a note */
};

/* "0x030200" as 0x030200; -1 without a class, 0 for what is no number. */
int32_t lrmoeNcclClass(const xmlNode *pci);
bool lrmoeNcclIsGpuClass(int32_t pciClass);
bool lrmoeNcclIsNicClass(int32_t pciClass);

/* link_speed and link_width of a pci element. */
lrmoeResult_t lrmoeNcclPciRate(struct lrmoeNccl *reader, const xmlNode *pci,
                               struct lrmoeRate *rate);

/* A GPU element below the pci element; parent is the node that it stands on,
 * sibling its number among the gpu elements of that pci. */
struct lrmoeNcclGpu {
  const xmlNode *pci;
  const xmlNode *gpu; /* NULL: a template's bare device */
  int32_t parent;
  int32_t sibling;
  int64_t bus;
  struct lrmoeRate up;
};
lrmoeResult_t lrmoeNcclAddGpu(struct lrmoeNccl *reader,
                              const struct lrmoeNcclGpu *gpu);

/* The ports of a NIC: its nic child's net elements; none: one unknown. */
lrmoeResult_t lrmoeNcclAddNic(struct lrmoeNccl *reader, const xmlNode *pci,
                              const struct lrmoeNode *nic);

/* Speed of a net element in bytes/s, 0 if it is not stated. */
lrmoeResult_t lrmoeNcclNetRate(const struct lrmoeNccl *reader,
                               const xmlNode *net, int64_t *bytesPerSecond);
lrmoeResult_t lrmoeNcclAddPort(struct lrmoeNccl *reader, const xmlNode *net,
                               int32_t nic);

/* Adds the links of every gpu element below root, once all GPUs are nodes. */
lrmoeResult_t lrmoeNcclAddLinks(struct lrmoeNccl *reader, const xmlNode *root);

/* The cpu's share of the CPU interconnect, guessed by its model. */
lrmoeResult_t lrmoeNcclCpuRate(const struct lrmoeNccl *reader,
                               const xmlNode *cpu, struct lrmoeRate *rate);

/* A number in 64 bits, or any text, as an identity; 0: none. */
uint64_t lrmoeNcclIdentity(const char *text);

/* Number of the host of a cpu element. */
int32_t lrmoeNcclHost(const struct lrmoeNccl *reader, const xmlNode *cpu);

#endif
