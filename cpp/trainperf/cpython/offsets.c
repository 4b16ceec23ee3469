/* The internal headers of 3.10 to 3.12 do not compile as C++, hence a C file. */

#include "trainperf/cpython/offsets.h"

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030A0000
#define TP_UNSUPPORTED "CPython before 3.10 is not supported"
#elif PY_VERSION_HEX >= 0x03100000
#define TP_UNSUPPORTED "the layout of this CPython (3.16 or later) is not known yet"
#elif defined(PYPY_VERSION)
#define TP_UNSUPPORTED "not CPython"
#elif defined(__has_include)
#if !__has_include("internal/pycore_gil.h")
#define TP_UNSUPPORTED "this build of trainperf had no internal headers of CPython"
#endif
#endif

#ifdef TP_UNSUPPORTED

TpPythonOffsets tp_python_offsets = {TP_UNSUPPORTED};

void TpAskInterpreter(void) {}

int TpObjectIsInUse(const void* header) {
  (void)header;
  return 0;
}

const void* TpThreadsHeadAddress(void) { return NULL; }

TpStopOffsets TpStopTheWorld(void) {
  TpStopOffsets none = {0};
  return none;
}

int TpUnicodeLayout(const void* header, int64_t* length, int* kind, int* data_offset) {
  (void)header, (void)length, (void)kind, (void)data_offset;
  return 0;
}

const void* TpRuntimeAddress(void) { return NULL; }
const void* TpCodeTypeAddress(void) { return NULL; }

#else

#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_critical_section.h"
#endif
#include "internal/pycore_gil.h"
#include "internal/pycore_pystate.h"
#include "internal/pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "internal/pycore_frame.h"
#else
#include <frameobject.h>
#endif

#define TP_GIL(field) offsetof(struct _gil_runtime_state, field)
#define TP_TSTATE(field) offsetof(PyThreadState, field)
#define TP_CODE(field) offsetof(PyCodeObject, field)
#if PY_VERSION_HEX >= 0x030B0000
#define TP_FRAME(field) offsetof(_PyInterpreterFrame, field)
#else
#define TP_FRAME(field) offsetof(PyFrameObject, field)
#endif

TpPythonOffsets tp_python_offsets = {
    .unsupported = NULL,
#ifdef Py_GIL_DISABLED
    .free_threaded = 1,
    .gil_enabled = TP_GIL(enabled),
    .tstate_state = TP_TSTATE(state),
    .tstate_critical_section = TP_TSTATE(critical_section),
    .tstate_attached = _Py_THREAD_ATTACHED,
#else
    .gil_enabled = -1,
    .tstate_state = -1,
    .tstate_critical_section = -1,
#endif
    .gil_interval = TP_GIL(interval),
    .gil_last_holder = TP_GIL(last_holder),
    .gil_locked = TP_GIL(locked),
    .gil_cond = TP_GIL(cond),
    .gil_switch_cond = TP_GIL(switch_cond),
    .gil_size = sizeof(struct _gil_runtime_state),
    .cond_size = sizeof(PyCOND_T),

    .tstate_prev = TP_TSTATE(prev),
    .tstate_next = TP_TSTATE(next),
    .tstate_id = TP_TSTATE(id),
#if PY_VERSION_HEX >= 0x030B0000
    .tstate_native_tid = TP_TSTATE(native_thread_id),
#else
    .tstate_native_tid = -1,
#endif
    .tstate_pthread = TP_TSTATE(thread_id),
#if PY_VERSION_HEX >= 0x030D0000
    .tstate_frame = TP_TSTATE(current_frame),
    .cframe_frame = -1,
#elif PY_VERSION_HEX >= 0x030B0000
    .tstate_frame = TP_TSTATE(cframe),
    .cframe_frame = offsetof(_PyCFrame, current_frame),
#else
    .tstate_frame = TP_TSTATE(frame),
    .cframe_frame = -1,
#endif
#if PY_VERSION_HEX >= 0x030B0000
    .tstate_data_stack = TP_TSTATE(datastack_chunk),
    .tstate_read_size = TP_TSTATE(datastack_limit) + sizeof(PyObject**),
#else
    .tstate_data_stack = -1,
    .tstate_read_size = TP_TSTATE(id) + sizeof(uint64_t),
#endif

    .frame_code =
#if PY_VERSION_HEX >= 0x030D0000
        TP_FRAME(f_executable),
#else
        TP_FRAME(f_code),
#endif
#if PY_VERSION_HEX >= 0x030E0000
    .frame_code_mask = ~(uint64_t)(Py_TAG_BITS | Py_INT_TAG),
#else
    .frame_code_mask = ~(uint64_t)0,
#endif
#if PY_VERSION_HEX >= 0x030B0000
    .frame_previous = TP_FRAME(previous),
    .frame_owner = TP_FRAME(owner),
    .frame_owner_is_generator = FRAME_OWNED_BY_GENERATOR,
    .frame_state = -1,
    .frame_read_size = TP_FRAME(localsplus),
    .frames_are_contiguous = 1,
#else
    .frame_previous = TP_FRAME(f_back),
    .frame_owner = -1,
    .frame_state = TP_FRAME(f_state),
    .frame_state_runs = FRAME_EXECUTING,
    .frame_read_size = TP_FRAME(f_state) + sizeof(PyFrameState),
    .frames_are_contiguous = 0,
#endif
#if PY_VERSION_HEX >= 0x030D0000
    .frame_instr = TP_FRAME(instr_ptr),
#elif PY_VERSION_HEX >= 0x030B0000
    .frame_instr = TP_FRAME(prev_instr),
#else
        .frame_instr = TP_FRAME(f_lasti),
    .frame_instr_is_index = 1,
#endif
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    .frame_tlbc_index = TP_FRAME(tlbc_index),
    .code_tlbc = TP_CODE(co_tlbc),
#else
    .frame_tlbc_index = -1,
    .code_tlbc = -1,
#endif
    .frame_owner_is_c = 3,
#if PY_VERSION_HEX >= 0x030C0000
    .outermost_is_c = 1,
#endif

    .code_identity = TP_CODE(co_firstlineno),
    .code_first_line = TP_CODE(co_firstlineno),
    .code_filename = TP_CODE(co_filename),
    .code_linetable = TP_CODE(co_linetable),
    .code_identity_end = TP_CODE(co_linetable) + sizeof(PyObject*),
    .code_read_size = TP_CODE(co_linetable) + sizeof(PyObject*),
#if PY_VERSION_HEX >= 0x030B0000
    .code_name = TP_CODE(co_qualname),
    .code_instructions = TP_CODE(co_code_adaptive),
#else
    .code_name = TP_CODE(co_name),
    .code_instructions = -1,
    .linetable_is_pep626_pairs = 1,
#endif

    .object_type = offsetof(PyObject, ob_type),
    .bytes_size = offsetof(PyVarObject, ob_size),
    .bytes_data = offsetof(PyBytesObject, ob_sval),
    .unicode_read_size = sizeof(PyCompactUnicodeObject),
};

#if PY_VERSION_HEX >= 0x030B0000
_Static_assert(TP_TSTATE(datastack_top) == TP_TSTATE(datastack_chunk) + 8, "one behind the other");
_Static_assert(TP_TSTATE(datastack_limit) == TP_TSTATE(datastack_chunk) + 16, "one behind the other");
_Static_assert(TP_TSTATE(datastack_limit) > TP_TSTATE(id), "tstate_read_size covers what is read");
#endif
_Static_assert(TP_TSTATE(id) > TP_TSTATE(thread_id), "tstate_read_size covers what is read");
_Static_assert(sizeof(PyCOND_T) == sizeof(pthread_cond_t), "CPython's condition variables are pthread's");

#if PY_VERSION_HEX >= 0x030D0000

static int32_t Largest(const int32_t* values, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
  return largest;
}

void TpAskInterpreter(void) {
  static int asked = 0;
  if (asked) return;
  asked = 1;
  TpPythonOffsets* to = &tp_python_offsets;
  const struct _Py_DebugOffsets* from = &_PyRuntime.debug_offsets;
  if (memcmp(from->cookie, "xdebugpy", sizeof(from->cookie)) != 0 || from->version >> 16 != PY_VERSION_HEX >> 16 ||
      from->free_threaded != (uint64_t)to->free_threaded) {
    to->unsupported = "this interpreter does not describe its layout as its version does";
    return;
  }
  to->tstate_prev = (int32_t)from->thread_state.prev;
  to->tstate_next = (int32_t)from->thread_state.next;
  to->tstate_frame = (int32_t)from->thread_state.current_frame;
  to->tstate_pthread = (int32_t)from->thread_state.thread_id;
  to->tstate_native_tid = (int32_t)from->thread_state.native_thread_id;
  to->tstate_data_stack = (int32_t)from->thread_state.datastack_chunk;
  to->frame_previous = (int32_t)from->interpreter_frame.previous;
  to->frame_code = (int32_t)from->interpreter_frame.executable;
  to->frame_instr = (int32_t)from->interpreter_frame.instr_ptr;
  to->frame_owner = (int32_t)from->interpreter_frame.owner;
  to->code_filename = (int32_t)from->code_object.filename;
  to->code_name = (int32_t)from->code_object.qualname;
  to->code_linetable = (int32_t)from->code_object.linetable;
  to->code_first_line = (int32_t)from->code_object.firstlineno;
  to->code_instructions = (int32_t)from->code_object.co_code_adaptive;
  to->object_type = (int32_t)from->pyobject.ob_type;
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
  to->frame_tlbc_index = (int32_t)from->interpreter_frame.tlbc_index;
  to->code_tlbc = (int32_t)from->code_object.co_tlbc;
#endif

  /* What is read at once must reach over all of it. */
  const int32_t state[] = {to->tstate_prev,
                           to->tstate_next,
                           to->tstate_frame,
                           to->tstate_pthread,
                           to->tstate_native_tid,
                           to->tstate_id,
                           to->tstate_data_stack + 16,
                           to->tstate_state,
                           to->tstate_critical_section};
  const int32_t code[] = {to->code_filename, to->code_name, to->code_linetable, to->code_first_line};
  to->tstate_read_size = Largest(state, sizeof(state) / sizeof(*state)) + 8;
  to->code_identity = to->code_first_line;
  to->code_identity_end = Largest(code, sizeof(code) / sizeof(*code)) + 8;
  to->code_read_size = to->code_identity_end > to->code_tlbc + 8 ? to->code_identity_end : to->code_tlbc + 8;
}

const void* TpThreadsHeadAddress(void) {
  return (const char*)PyInterpreterState_Main() + _PyRuntime.debug_offsets.interpreter_state.threads_head;
}

#else

void TpAskInterpreter(void) {}
const void* TpThreadsHeadAddress(void) { return NULL; }

#endif

TpStopOffsets TpStopTheWorld(void) {
  TpStopOffsets found = {0};
#ifdef Py_GIL_DISABLED
  const PyInterpreterState* interpreter = PyInterpreterState_Main();
  const struct _Py_DebugOffsets* from = &_PyRuntime.debug_offsets;
  found.size_matches = from->interpreter_state.size == sizeof(PyInterpreterState) &&
                       from->runtime_state.size == sizeof(_PyRuntimeState) &&
                       from->thread_state.size == sizeof(PyThreadState);
  found.requester[0] = (const void* const*)&interpreter->stoptheworld.requester;
  found.requester[1] = (const void* const*)&_PyRuntime.stoptheworld.requester;
  found.stop_mutexes[0] = &interpreter->stoptheworld.mutex;
  found.stop_mutexes[1] = &_PyRuntime.stoptheworld.mutex;
  found.object_mutex = offsetof(PyObject, ob_mutex);
  found.object_size = sizeof(PyObject);
  found.section_previous = offsetof(PyCriticalSection, _cs_prev);
  found.section_mutex = offsetof(PyCriticalSection, _cs_mutex);
  found.section_mutex2 = offsetof(PyCriticalSection2, _cs_mutex2);
  found.section_inactive = _Py_CRITICAL_SECTION_INACTIVE;
  found.section_has_two = _Py_CRITICAL_SECTION_TWO_MUTEXES;
#endif
  return found;
}

int TpObjectIsInUse(const void* header) {
#ifdef Py_GIL_DISABLED
  /* Immortal objects have the most in ob_ref_local; flags lie below the count in ob_ref_shared. */
  PyObject object;
  memcpy(&object, header, sizeof(object));
  return object.ob_ref_local != 0 || object.ob_ref_shared >> _Py_REF_SHARED_SHIFT > 0;
#else
  uint64_t count;
  memcpy(&count, (const char*)header + offsetof(PyObject, ob_refcnt), sizeof(count));
#if PY_VERSION_HEX >= 0x030E0000
  count &= 0xFFFFFFFFFFFFull;              /* flags above it */
#endif
  return count > 0 && count <= UINT32_MAX; /* immortal objects have about the latter */
#endif
}

int TpUnicodeLayout(const void* header, int64_t* length, int* kind, int* data_offset) {
  const PyASCIIObject* str = (const PyASCIIObject*)header;
  if (!str->state.compact || str->length < 0) return 0;
  *length = str->length;
  *kind = str->state.kind;
  *data_offset = str->state.ascii ? (int)sizeof(PyASCIIObject) : (int)sizeof(PyCompactUnicodeObject);
  return *kind == 1 || *kind == 2 || *kind == 4;
}

const void* TpRuntimeAddress(void) { return &_PyRuntime; }
const void* TpCodeTypeAddress(void) { return &PyCode_Type; }

#endif
