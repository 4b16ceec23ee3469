// The type of functions with a bracket around them (bind_brackets.cc): what makes them look like those that they stand
// for. Requires GIL, all of it. Without one threads may call it while a watch begins or ends on another: what these
// change is read and written by the functions below.

#ifndef TRAINPERF_BINDINGS_BRACKET_FUNCTION_H_
#define TRAINPERF_BINDINGS_BRACKET_FUNCTION_H_

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>

namespace trainperf {

#ifdef Py_GIL_DISABLED
inline constexpr bool kHasGil = false;
#else
inline constexpr bool kHasGil = true;
#endif
inline constexpr size_t kKnown = 4;  // loaders that are zipped, optimizers of a GAN

struct KnownThing {
  PyObject* thing;  // borrowed: who tells us of it also tells us when it goes
  uint32_t number;
};

// What a call reads stands first, and together.
struct BracketFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  bool on;  // by IsOn() and SetOn()
  PyObject* original;
  PyObject* begin;  // nullptr: our own, called without Python
  PyObject* end;
  PyObject* ask;       // is_grad_enabled(); the number of the backward that is running already, or -1
  int (*ask_torch)();  // the same, without the 1 us that the way through Python takes in cold caches; or nullptr
  PyObject* slow;      // for what is not known; for a backward: called once, before the first
  PyObject* tick;
  int64_t next_tick_ns;  // by __atomic_*: backwards of several threads
  size_t next_known;
  KnownThing known[kKnown];
  PyObject* apart;   // of a function that writes logs: an ApartState
  PyObject* before;  // of an optimizer's step: the two functions, which have no object of this type around them
  PyObject* after;
  PyObject* dict;
  PyObject* weak_references;
};

inline BracketFunction* AsBracketFunction(PyObject* object) { return reinterpret_cast<BracketFunction*>(object); }

void AddBracketFunctionType(pybind11::module_* module);
// With all fields empty. nullptr, with an exception set: no memory.
BracketFunction* NewBracketFunction(vectorcallfunc call);
// Its fields are set: from now on the garbage collector sees it.
PyObject* FinishBracketFunction(BracketFunction* function, bool on);

inline bool IsOn(const BracketFunction& function) { return __atomic_load_n(&function.on, __ATOMIC_RELAXED); }
inline void SetOn(BracketFunction* function, bool on) { __atomic_store_n(&function->on, on, __ATOMIC_RELAXED); }

// `field`: one of `function`. The first two give the caller a reference, to what is there or was there, or nullptr; the
// second steals that to `value`.
PyObject* HoldField(BracketFunction* function, PyObject** field);
PyObject* ExchangeField(BracketFunction* function, PyObject** field, PyObject* value);
void SetField(BracketFunction* function, PyObject** field, PyObject* value);
void SetMarks(BracketFunction* function, PyObject* begin, PyObject* end);

}  // namespace trainperf

#endif  // TRAINPERF_BINDINGS_BRACKET_FUNCTION_H_
