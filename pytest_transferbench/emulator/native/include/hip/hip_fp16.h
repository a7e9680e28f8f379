// 16-bit floating point, as far as CuPy's own kernels use it.
#pragma once

struct __half_raw {
  unsigned short x;
};

struct half {
  half() = default;
  half(float value) : value_(static_cast<_Float16>(value)) {}
  explicit half(bool value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  explicit half(double value) : value_(static_cast<_Float16>(value)) {}
  explicit half(int value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  explicit half(unsigned value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  explicit half(long long value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  explicit half(unsigned long long value) : value_(static_cast<_Float16>(static_cast<float>(value))) {}
  explicit half(const __half_raw& raw) { __builtin_memcpy(&value_, &raw, sizeof value_); }
  operator float() const { return static_cast<float>(value_); }
  operator __half_raw() const {
    __half_raw raw;
    __builtin_memcpy(&raw, &value_, sizeof raw);
    return raw;
  }

 private:
  _Float16 value_;
};
typedef half __half;

static inline unsigned short __half_as_ushort(half value) { return static_cast<__half_raw>(value).x; }
static inline half __ushort_as_half(unsigned short bits) { return half(__half_raw{bits}); }
