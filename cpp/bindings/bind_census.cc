// Which of Python's containers got longer between two looks at all that the garbage collector knows, and what a frame
// has by which name. Nothing of the program's runs for it, and nothing is kept but numbers.

#include <Python.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bindings/bind.h"
#include "trainperf/cpython/frame_locals.h"
#include "trainperf/cpython/gc_objects.h"

namespace py = pybind11;

namespace trainperf {
namespace {

constexpr Py_ssize_t kShort = 4;  // what is shorter did not grow for long
constexpr size_t kMostGrown = 64;

struct Container {
  const PyObject* object;
  const PyTypeObject* type;
  const PyObject* first;  // of a list: a new one at the same address begins with another
  Py_ssize_t length;
};

// By the C structures alone: a class of the program's may have a __len__.
Py_ssize_t LengthOf(PyObject* object, PyTypeObject* deque) {
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (Py_TYPE(object) == deque || Py_TYPE(object)->tp_base == deque) return Py_SIZE(object);
  return -1;
}

struct Look {
  PyTypeObject* deque;
  std::vector<Container>* found;
  size_t objects = 0;

  void At(PyObject* object) {
    ++objects;
    const Py_ssize_t length = LengthOf(object, deque);
    if (length < kShort) return;
    const PyObject* first = PyList_Check(object) ? PyList_GET_ITEM(object, 0) : nullptr;
    found->push_back({object, Py_TYPE(object), first, length});
  }
};

int LookAt(PyObject* object, void* look) {
  static_cast<Look*>(look)->At(object);
  return 1;
}

class Census {
 public:
  Census() : deque_(py::module_::import("collections").attr("deque")) {}

  // Returns how many objects there are.
  size_t Take() {
    before_.clear();
    return LookAround(&before_);
  }

  py::list Grown(Py_ssize_t least) {
    std::vector<Container> now;
    LookAround(&now);
    absl::flat_hash_map<const PyObject*, const Container*> known;
    known.reserve(before_.size());
    for (const Container& container : before_) known.emplace(container.object, &container);
    std::vector<std::pair<const Container*, const Container*>> grown;
    for (const Container& container : now) {
      const auto at = known.find(container.object);
      if (at == known.end()) continue;
      const Container& was = *at->second;
      if (was.type != container.type || was.first != container.first || container.length - was.length < least) continue;
      grown.emplace_back(&was, &container);
    }
    const auto more = [](const auto& a, const auto& b) {
      return a.second->length - a.first->length > b.second->length - b.first->length;
    };
    std::sort(grown.begin(), grown.end(), more);
    if (grown.size() > kMostGrown) grown.resize(kMostGrown);
    py::list told;
    for (const auto& [was, is] : grown) {
      told.append(py::make_tuple(reinterpret_cast<uintptr_t>(is->object), was->length, is->length));
    }
    before_ = {};
    return told;
  }

 private:
  size_t LookAround(std::vector<Container>* found) {
    Look look{reinterpret_cast<PyTypeObject*>(deque_.ptr()), found};
    if (TpVisitObjects(&LookAt, &look) == 0) {
      PyErr_SetString(PyExc_NotImplementedError, "this build of trainperf had no internal headers of CPython");
      throw py::error_already_set();
    }
    return look.objects;
  }

  py::object deque_;
  std::vector<Container> before_;  // addresses: no longer these objects', maybe
};

py::object FrameLocals(const py::object& frame) {
  if (PyFrame_Check(frame.ptr()) == 0) throw py::type_error("frame_locals() takes a frame");
  PyObject* locals = TpFrameLocals(reinterpret_cast<PyFrameObject*>(frame.ptr()));
  if (locals == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(locals);
}

// The length of a list, dict, set or deque, or of one of a class that derives from it; -1 for anything else.
Py_ssize_t ContainerLength(const py::object& object) {
  const py::object deque = py::module_::import("collections").attr("deque");
  return LengthOf(object.ptr(), reinterpret_cast<PyTypeObject*>(deque.ptr()));
}

}  // namespace

void BindCensus(py::module_& module) {
  py::class_<Census>(module, "Census")
      .def(py::init<>())
      .def("take", &Census::Take)
      .def("grown", &Census::Grown, py::arg("least"));
  module.def("frame_locals", &FrameLocals, py::arg("frame"), py::pos_only());
  module.def("container_length", &ContainerLength, py::arg("thing"), py::pos_only());
}

}  // namespace trainperf
