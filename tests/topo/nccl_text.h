/* Pieces of NCCL's topology XML as string literals. */
#ifndef LRMOE_TESTS_TOPO_NCCL_TEXT_H
#define LRMOE_TESTS_TOPO_NCCL_TEXT_H

#define CPU(id, body)                                               \
  "<cpu numaid=\"" id "\" arch=\"x86_64\" vendor=\"AuthenticAMD\" " \
  "familyid=\"175\" modelid=\"1\">" body "</cpu>"
#define SYSTEM(body) "<system version=\"1\">" body "</system>"
#define PCI(bus, class, speed, width, body)                                   \
  "<pci busid=\"" bus "\" class=\"" class "\" link_speed=\"" speed            \
                                          "\" link_width=\"" width "\">" body \
                                          "</pci>"
#define GPU(bus, rank, links)                  \
  PCI(bus, "0x030200", "16.0 GT/s PCIe", "16", \
      "<gpu dev=\"" rank "\" sm=\"80\" rank=\"" rank "\">" links "</gpu>")
#define NVLINK(target, count) \
  "<nvlink target=\"" target "\" count=\"" count "\" tclass=\"0x030200\"/>"
#define TO_SWITCH(target, count) \
  "<nvlink target=\"" target "\" count=\"" count "\" tclass=\"0x068000\"/>"
#define NIC(bus, nets) \
  PCI(bus, "0x020700", "16.0 GT/s PCIe", "16", "<nic>" nets "</nic>")
#define NET(name, speed, port, guid)                                  \
  "<net name=\"" name "\" dev=\"0\" speed=\"" speed "\" port=\"" port \
  "\" guid=\"" guid "\" latency=\"1.5\" gdr=\"1\"/>"

#endif
