/* Which GPU a rank of a program takes. */
#ifndef LRMOE_TOOLS_DEVICE_H
#define LRMOE_TOOLS_DEVICE_H

/* With LRMOE_BACKEND=cuda, and before anything of CUDA is called: leaves this
 * process one GPU in CUDA_VISIBLE_DEVICES, those that the variable names or the
 * machine's in turn. */
void toolDeviceChoose(int rank);

#endif
