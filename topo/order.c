/* Puts the nodes of a machine into an order that its source does not give:
 * hosts as they come, below each the nodes of its tree, siblings by bus
 * address.  What is named after a node that is the first of several (a card's
 * NIC, one end of a link) is then the same for every file of the same
 * machine, and lists of devices and links compare line by line. */
#include "base/alloc.h"
#include "topo/machine.h"

#include <stdlib.h>
#include <string.h>

struct item {
  const struct lrmoeNode *node;
  int32_t number; /* before */
};

struct order {
  struct lrmoeMachine *machine;
  struct item *items;      /* [numNodes] children of one parent together */
  int32_t *firsts;         /* [numNodes + 1] of items, by parent + 1 */
  int32_t *stack;          /* [numNodes] */
  int32_t *numbers;        /* [numNodes] afterwards, by that before */
  struct lrmoeNode *nodes; /* [numNodes] in the new order */
};

static int compareWords(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

static int compareItems(const void *left, const void *right) {
  const struct item *a = left, *b = right;
  const struct lrmoeNode *one = a->node, *other = b->node;
  int sign = compareWords(one->parent, other->parent);
  bool isRoot = one->parent < 0;
  if (!sign && !isRoot) sign = compareWords(one->bus, other->bus);
  if (!sign) sign = compareWords(one->kind, other->kind);
  if (!sign && !isRoot) sign = compareWords(one->index, other->index);
  if (!sign && !isRoot) sign = compareWords(one->partition, other->partition);
  if (!sign && !isRoot) sign = strcmp(one->name, other->name);
  return sign ? sign : compareWords(a->number, b->number);
}

static lrmoeResult_t reserve(struct order *order) {
  int64_t numNodes = order->machine->numNodes;
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &order->items));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes + 2, &order->firsts));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &order->stack));
  LRMOE_CHECK(LRMOE_ALLOCATE(numNodes, &order->numbers));
  return LRMOE_ALLOCATE(numNodes, &order->nodes);
}

static void sortSiblings(struct order *order) {
  const struct lrmoeMachine *machine = order->machine;
  int32_t numNodes = machine->numNodes;
  for (int32_t i = 0; i < numNodes; i++) {
    order->items[i] = (struct item){&machine->nodes[i], i};
    order->firsts[machine->nodes[i].parent + 2]++;
  }
  for (int32_t i = 0; i <= numNodes; i++)
    order->firsts[i + 1] += order->firsts[i];
  qsort(order->items, (size_t)numNodes, sizeof *order->items, compareItems);
}

/* Children are pushed last first. */
static int32_t push(struct order *order, int32_t parent, int32_t height) {
  int32_t first = order->firsts[parent + 1];
  for (int32_t i = order->firsts[parent + 2] - 1; i >= first; i--)
    order->stack[height++] = order->items[i].number;
  return height;
}

static void number(struct order *order) {
  int32_t next = 0;
  for (int32_t height = push(order, -1, 0); height;) {
    int32_t node = order->stack[--height];
    order->numbers[node] = next++;
    height = push(order, node, height);
  }
}

static int32_t renumbered(const struct order *order, int32_t node) {
  return node < 0 ? node : order->numbers[node];
}

static void apply(struct order *order) {
  struct lrmoeMachine *machine = order->machine;
  size_t bytes = (size_t)machine->numNodes * sizeof *order->nodes;
  for (int32_t i = 0; i < machine->numNodes; i++) {
    struct lrmoeNode *node = &order->nodes[order->numbers[i]];
    *node = machine->nodes[i];
    node->parent = renumbered(order, node->parent);
    node->host = renumbered(order, node->host);
  }
  if (bytes) memcpy(machine->nodes, order->nodes, bytes);
  for (int32_t i = 0; i < machine->numWires; i++) {
    machine->wires[i].from = order->numbers[machine->wires[i].from];
    machine->wires[i].to = order->numbers[machine->wires[i].to];
  }
  for (int32_t i = 0; i < machine->numNotes; i++)
    machine->notes[i].node = renumbered(order, machine->notes[i].node);
}

lrmoeResult_t lrmoeMachineSort(struct lrmoeMachine *machine) {
  struct order order = {.machine = machine};
  lrmoeResult_t result = reserve(&order);
  if (result == lrmoeSuccess) {
    sortSiblings(&order);
    number(&order);
    apply(&order);
  }
  lrmoeFree(order.items);
  lrmoeFree(order.firsts);
  lrmoeFree(order.stack);
  lrmoeFree(order.numbers);
  lrmoeFree(order.nodes);
  return result;
}
