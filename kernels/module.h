/* Modules: shared libraries of this project that are loaded only when used. */
#ifndef LRMOE_KERNELS_MODULE_H
#define LRMOE_KERNELS_MODULE_H

/* Opens a module, with local symbols; NULL: dlerror() says why.  It is looked
 * for in LRMOE_MODULE_PATH and nowhere else; if that is unset, beside the
 * object that this code is in (liblrmoe.so), then where the dynamic loader
 * looks. */
void *lrmoeModuleOpen(const char *file);

#endif
