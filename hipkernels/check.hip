// Comparing memory with what it must hold, on the device that owns it, and poisoning it beforehand.

// What word i must be: the pattern of `key`, or the word of `reference` where the data is not ours.
__device__ inline tb_u32 tb_expected(tb_u64 i, const tb_u32* reference, tb_u32 key) {
  return reference ? reference[i] : tb_hash(i) ^ key;
}

// Every stride-th word and the last one become the complement of what a copy must write there: wrong in all 32 bits.
TB_KERNEL(256) tb_poison(tb_u32* words, tb_u64 count, tb_u64 stride, const tb_u32* reference, tb_u32 key) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  for (tb_u64 i = thread * stride; i < count; i += threads * stride) words[i] = ~tb_expected(i, reference, key);
  if (thread == 0) words[count - 1] = ~tb_expected(count - 1, reference, key);
}

// found = {wrong words, wrong bytes, first wrong index, last wrong index, OR of (found ^ expected)}; the host presets
// {0, 0, ~0, 0, 0}. Looks at every stride-th word and at the last one; stride 1 looks at all.
TB_KERNEL(256) tb_check(const tb_u32* words, tb_u64 count, tb_u64 stride, const tb_u32* reference, tb_u32 key,
                        tb_u64* found) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  tb_u64 wrong = 0, bytes = 0, first = ~0ull, last = 0, mask = 0;
  tb_u64 i = thread * stride;
  // The last word falls to thread 0, after its own share, unless the stride already meets it.
  while (i < count) {
    const tb_u32 differs = words[i] ^ tb_expected(i, reference, key);
    if (differs) {
      ++wrong;
      for (int shift = 0; shift < 32; shift += 8) bytes += (differs >> shift & 255) != 0;
      if (first == ~0ull) first = i;
      last = i;
      mask |= differs;
    }
    const bool at_end = i == count - 1;
    i += threads * stride;
    if (i >= count && thread == 0 && !at_end && (count - 1) % stride) i = count - 1;
  }
  if (wrong) {
    atomicAdd(found, wrong);
    atomicAdd(found + 1, bytes);
    atomicMin(found + 2, first);
    atomicMax(found + 3, last);
    atomicOr(found + 4, mask);
  }
}

// The sum that tb_read must find in one pass over the pattern of `key`, made without touching memory.
TB_KERNEL(256) tb_expected_sum(tb_u64 count, tb_u32 key, tb_u64* sum) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  tb_u64 mine = 0;
  for (tb_u64 i = thread; i < count; i += threads) mine += tb_hash(i) ^ key;
  atomicAdd(sum, mine);
}
