// convert.h: arguments and results of bound functions whose types Python has in a form of its own.
//
// nanobind asks first whether all arguments fit, where nothing can be raised, then makes the values. The
// conversions here take any object at first, and raise what as_dtype and the others raise when the value is
// made.
#pragma once

#include "bindings/program.h"

namespace nanobind::detail {

template <class T, T (*convert)(handle)>
struct LateCaster {
  static constexpr auto Name = const_name("object");
  template <class>
  using Cast = T;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    object = source;
    return true;
  }
  operator T() const { return convert(object); }

  handle object;
};
template <>
struct type_caster<weft::DType> : LateCaster<weft::DType, weft::as_dtype> {};
template <>
struct type_caster<weft::Device> : LateCaster<weft::Device, weft::as_device> {};

// What objects of a bound class hold: T itself. A result is a new object of the class.
template <class T, class Holder, T Holder::* member>
struct HeldCaster {
  static constexpr auto Name = make_caster<Holder>::Name;
  template <class>
  using Cast = const T&;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    make_caster<Holder> caster;
    if (!caster.from_python(source, flags | static_cast<uint32_t>(cast_flags::none_disallowed), cleanup))
      return false;
    held = &(caster.operator Holder&().*member);
    return true;
  }
  static handle from_cpp(T value, rv_policy, cleanup_list* cleanup) noexcept {
    return make_caster<Holder>::from_cpp(Holder{std::move(value)}, rv_policy::move, cleanup);
  }
  operator const T&() const { return *held; }

  const T* held = nullptr;
};
template <>
struct type_caster<weft::Ref<weft::Kernel>>
    : HeldCaster<weft::Ref<weft::Kernel>, weft::PyKernel, &weft::PyKernel::kernel> {};
template <>
struct type_caster<weft::Ref<weft::Plan>>
    : HeldCaster<weft::Ref<weft::Plan>, weft::PyPlan, &weft::PyPlan::plan> {};

}  // namespace nanobind::detail
