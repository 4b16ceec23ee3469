/* Where things lie in the CPython this was compiled for: the only file with its source that includes CPython's internal
 * headers.
 *
 * Offsets within PyThreadState, frames and code objects are fixed within a minor version, unless a distribution patches
 * them; those within _PyRuntime are not, so nothing here is relative to it (GilView scans). -1 stands for "this version
 * has no such field". What is built on them is tried on the caller's own stack before it is used (FrameReader). */

#ifndef TRAINPERF_CPYTHON_OFFSETS_H_
#define TRAINPERF_CPYTHON_OFFSETS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* unsupported; /* NULL, or why nothing of the rest is filled in */

  /* struct _gil_runtime_state */
  int32_t gil_enabled; /* free-threaded builds only: 0 while there is no GIL */
  int32_t gil_interval;
  int32_t gil_last_holder;
  int32_t gil_locked;
  int32_t gil_cond;
  int32_t gil_switch_cond;
  int32_t gil_size;
  int32_t cond_size;

  /* PyThreadState. `tstate_frame` leads to the innermost frame, by way of a _PyCFrame where cframe_frame >= 0. */
  int32_t tstate_prev;
  int32_t tstate_next;
  int32_t tstate_id;
  int32_t tstate_native_tid;
  int32_t tstate_pthread;
  int32_t tstate_frame;
  int32_t tstate_state; /* free-threaded builds only: whether its thread may run Python now */
  int32_t
      tstate_critical_section; /* free-threaded builds only: tagged, leads to the innermost of its locks of objects */
  int32_t tstate_attached; /* `tstate_state` of one that may; it is so from its taking of the GIL where there is one */
  int32_t tstate_data_stack; /* three pointers: its latest chunk, the end of what is in use of it, and of all of it */
  int32_t tstate_read_size;  /* everything above lies below it */
  int32_t cframe_frame;

  /* _PyInterpreterFrame, or PyFrameObject on 3.10 */
  int32_t frame_code;
  uint64_t frame_code_mask; /* 3.14: the lowest bits of the pointer are a tag */
  int32_t frame_previous;
  int32_t frame_instr;
  int32_t frame_instr_is_index; /* 3.10: a count of code units, else a pointer into the code object */
  int32_t frame_tlbc_index;     /* free-threaded 3.14 on: which of its code's copies of the bytecode it runs */
  int32_t frame_owner;
  int32_t frame_owner_is_c; /* owners from this value on have no Python code */
  int32_t outermost_is_c;   /* every stack ends with one of those */
  int32_t frame_owner_is_generator;
  int32_t frame_state; /* of 3.10 only */
  int32_t frame_state_runs;
  int32_t frame_read_size;
  int32_t frames_are_contiguous; /* they lie behind one another in the thread's data stack */

  /* PyCodeObject. What lies in [code_identity, code_identity_end) never changes once it is made. */
  int32_t code_identity;
  int32_t code_identity_end;
  int32_t code_first_line;
  int32_t code_filename;
  int32_t code_name; /* co_qualname where there is one */
  int32_t code_linetable;
  int32_t code_instructions;
  int32_t code_tlbc; /* free-threaded 3.14 on: leads to how many copies there are, and behind that to each of them */
  int32_t code_read_size;
  int32_t linetable_is_pep626_pairs; /* 3.10's format, else 3.11's location table */

  int32_t object_type;
  int32_t bytes_size; /* of any object of variable size */
  int32_t bytes_data;
  int32_t unicode_read_size;

  int32_t free_threaded; /* a build without a GIL, or with one that can be switched off */
} TpPythonOffsets;

/* As compiled; from 3.13 on the interpreter in use says itself where most of it is, once TpAskInterpreter() has asked.
 */
extern TpPythonOffsets tp_python_offsets;

/* Requires the GIL, and comes before any use of the table. The first call alone writes to it. */
void TpAskInterpreter(void);

/* Whether the begin of an object, of which `header` is a copy, looks like one in use: allocators put a pointer, or
 * zero, into the first word of what is freed, and leave most of the rest. */
int TpObjectIsInUse(const void* header);

/* Free-threaded builds only; elsewhere all NULL and -1. Of the main interpreter, and at the addresses that the headers
 * give: `size_matches` says whether the interpreter in use is as large as theirs. */
typedef struct {
  int32_t size_matches;
  const void* const* requester[2]; /* the thread states that stop the threads of this interpreter, and of all */
  const void* stop_mutexes[2];     /* each is held by who stops them */
  int32_t object_mutex;            /* in a PyObject */
  int32_t object_size;             /* what follows it in _thread.lock and RLock is their PyMutex */
  int32_t section_previous;        /* PyCriticalSection: tagged, the next outer one */
  int32_t section_mutex;
  int32_t section_mutex2;                     /* PyCriticalSection2 */
  uint64_t section_inactive, section_has_two; /* tags */
} TpStopOffsets;
TpStopOffsets TpStopTheWorld(void);

/* &interpreter->threads.head of the main interpreter; NULL where its place is not known (before 3.13). */
const void* TpThreadsHeadAddress(void);

/* `header`: a copy of the first unicode_read_size bytes of a str. 0 when it is no compact string; else its length in
 * code points, how many bytes each has, and where they begin. */
int TpUnicodeLayout(const void* header, int64_t* length, int* kind, int* data_offset);

/* &_PyRuntime and &PyCode_Type, without the headers that declare what is behind them. */
const void* TpRuntimeAddress(void);
const void* TpCodeTypeAddress(void);

#ifdef __cplusplus
}
#endif

#endif /* TRAINPERF_CPYTHON_OFFSETS_H_ */
