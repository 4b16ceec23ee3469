// All objects that Python's garbage collector knows, one after the other, without a list of them.

#ifndef TRAINPERF_CPYTHON_GC_OBJECTS_H_
#define TRAINPERF_CPYTHON_GC_OBJECTS_H_

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

// visit() returns 1 to go on; it makes and frees no object. Returns 0, without a visit, where this Python's lists of
// objects are not known. Requires GIL.
int TpVisitObjects(int (*visit)(PyObject* object, void* argument), void* argument);

#ifdef __cplusplus
}
#endif

#endif  // TRAINPERF_CPYTHON_GC_OBJECTS_H_
