// bfloat16, as far as CuPy's own kernels use it: the upper half of a float, rounded to nearest even.
#pragma once

struct __hip_bfloat16 {
  __hip_bfloat16() = default;
  __hip_bfloat16(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    bits_ = static_cast<unsigned short>(is_nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
  operator float() const {
    const unsigned bits = static_cast<unsigned>(bits_) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
  }
  unsigned short bits_;
};

static inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 value) { return value.bits_; }
static inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __hip_bfloat16 value;
  value.bits_ = bits;
  return value;
}
static inline bool __hisnan(__hip_bfloat16 value) { return (value.bits_ & 0x7fffu) > 0x7f80u; }
static inline bool __hisinf(__hip_bfloat16 value) { return (value.bits_ & 0x7fffu) == 0x7f80u; }
