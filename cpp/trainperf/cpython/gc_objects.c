/* The internal headers of 3.10 and 3.11 do not compile as C++, hence a C file. */

#include "trainperf/cpython/gc_objects.h"

#define PY_SSIZE_T_CLEAN
#if PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE 1
#endif
#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000

int TpVisitObjects(int (*visit)(PyObject* object, void* argument), void* argument) {
  PyUnstable_GC_VisitObjects(visit, argument);
  return 1;
}

#elif defined(__has_include) && __has_include("internal/pycore_gc.h")

#include "internal/pycore_gc.h"
#include "internal/pycore_interp.h"

int TpVisitObjects(int (*visit)(PyObject* object, void* argument), void* argument) {
  struct _gc_runtime_state* gc = &PyInterpreterState_Get()->gc;
  if (gc->collecting) return 1; /* on another thread, which runs a finalizer: the lists are not whole */
  for (int i = 0; i < NUM_GENERATIONS; ++i) {
    PyGC_Head* head = &gc->generations[i].head;
    /* From both ends at once: the time goes into waits for memory, and so two are waited for together. */
    PyGC_Head* first = _PyGCHead_NEXT(head);
    PyGC_Head* last = _PyGCHead_PREV(head);
    while (first != head) {
      if (!visit((PyObject*)(first + 1), argument)) return 1;
      if (first == last) break;
      if (!visit((PyObject*)(last + 1), argument)) return 1;
      if (_PyGCHead_NEXT(first) == last) break;
      first = _PyGCHead_NEXT(first);
      last = _PyGCHead_PREV(last);
    }
  }
  return 1;
}

#else

int TpVisitObjects(int (*visit)(PyObject* object, void* argument), void* argument) {
  (void)visit, (void)argument;
  return 0;
}

#endif
