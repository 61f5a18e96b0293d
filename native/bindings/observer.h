// observer.h: observers of an engine that are Python objects.
#pragma once

#include "bindings/functions.h"

namespace weft {

// Calls the methods an observer object has. What they raise is reported and dropped.
struct PyEngine::Watcher : Observer {
  explicit Watcher(nb::object o) : object(std::move(o)) {
    for (int i = 0; i < 3; ++i) observes[i] = nb::hasattr(object, kMethods[i]);
  }
  ~Watcher() override {
    if (!object.is_valid()) return;
    if (python_is_ending()) {
      object.release();
      return;
    }
    const WithGil gil;
    object.reset();
  }
  void on_push(const Event& e) override { call(0, e); }
  void on_start(const Event& e) override { call(1, e); }
  void on_end(const Event& e) override { call(2, e); }

  static constexpr const char* kMethods[3] = {"on_push", "on_start", "on_end"};
  nb::object object;
  bool observes[3];

 private:
  void call(int which, const Event& event);
};

void add_observer(PyEngine& engine, nb::object observer);
void remove_observer(PyEngine& engine, nb::handle observer);
void bind_observers(nb::module_& m);

}  // namespace weft
