// The locals of a frame that runs, by name.
//
// Until Python 3.12 frame.f_locals is a dict that stays with the frame: it would keep what is in there alive, and
// change what the program has of its own locals() call. So they are read where the interpreter has them.

#ifndef TRAINPERF_CPYTHON_FRAME_LOCALS_H_
#define TRAINPERF_CPYTHON_FRAME_LOCALS_H_

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

// A new dict of a function's locals, its cells' contents among them; empty for a module's or a class's frame. Null with
// an exception set: NotImplementedError where this Python's frames are not known. Requires GIL, and that the frame is
// one of this interpreter's that runs no bytecode just now, as all do but the caller's.
PyObject* TpFrameLocals(PyFrameObject* frame);

#ifdef __cplusplus
}
#endif

#endif  // TRAINPERF_CPYTHON_FRAME_LOCALS_H_
