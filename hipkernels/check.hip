// Comparing memory with what it must hold, on the device that owns it, and poisoning it beforehand.

// The keys of the sources whose data must have arrived: of several, their numbers added up.
struct tb_keys {
  tb_u32 count, key[8];
};

// What word i must be: the pattern of `keys`, or the word of `reference` where the data is not ours.
__device__ inline tb_u32 tb_expected(tb_u64 i, const tb_u32* reference, const tb_keys& keys) {
  if (reference) return reference[i];
  tb_u32 word = tb_word(i, keys.key[0], keys.count > 1);
  for (tb_u32 k = 1; k < keys.count; ++k) word = tb_sum(word, tb_word(i, keys.key[k], true));
  return word;
}

// Every stride-th word and the last one become the complement of what a copy must write there: wrong in all 32 bits.
// Stride 1 means all of them, and goes by vectors.
TB_KERNEL(256) tb_poison(tb_u32* words, tb_u64 count, tb_u64 stride, const tb_u32* reference, tb_keys keys) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  if (stride > 1) {
    for (tb_u64 i = thread * stride; i < count; i += threads * stride) words[i] = ~tb_expected(i, reference, keys);
    if (thread == 0) words[count - 1] = ~tb_expected(count - 1, reference, keys);
    return;
  }
  const tb_span parts = tb_split(words, 4 * count);
  tb_v4* const vectors = (tb_v4*)(words + parts.head);
  for (tb_u64 v = thread; v < parts.vectors; v += threads) {
    const tb_u64 i = parts.head + 4 * v;
    vectors[v] = tb_v4{~tb_expected(i, reference, keys), ~tb_expected(i + 1, reference, keys),
                       ~tb_expected(i + 2, reference, keys), ~tb_expected(i + 3, reference, keys)};
  }
  if (thread < parts.head) words[thread] = ~tb_expected(thread, reference, keys);
  const tb_u64 behind = parts.tail_at + thread;
  if (behind < count) words[behind] = ~tb_expected(behind, reference, keys);
}

struct tb_wrong {
  tb_u64 words, bytes, first, last, mask;
};

__device__ inline void tb_compare(tb_wrong& wrong, tb_u64 i, tb_u32 word, const tb_u32* reference,
                                  const tb_keys& keys) {
  const tb_u32 differs = word ^ tb_expected(i, reference, keys);
  if (!differs) return;
  ++wrong.words;
  for (int shift = 0; shift < 32; shift += 8) wrong.bytes += (differs >> shift & 255) != 0;
  if (i < wrong.first) wrong.first = i;
  if (i > wrong.last) wrong.last = i;
  wrong.mask |= differs;
}

// found = {wrong words, wrong bytes, first wrong index, last wrong index, OR of (found ^ expected)}; the host presets
// {0, 0, ~0, 0, 0}. Looks at every stride-th word and at the last one; stride 1 looks at all, by vectors.
TB_KERNEL(256) tb_check(const tb_u32* words, tb_u64 count, tb_u64 stride, const tb_u32* reference, tb_keys keys,
                        tb_u64* found) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  tb_wrong wrong{0, 0, ~0ull, 0, 0};
  if (stride > 1) {
    for (tb_u64 i = thread * stride; i < count; i += threads * stride)
      tb_compare(wrong, i, words[i], reference, keys);
    const tb_u64 end = count - 1;
    if (thread == 0 && end % stride) tb_compare(wrong, end, words[end], reference, keys);
  } else {
    const tb_span parts = tb_split(words, 4 * count);
    const tb_v4* const vectors = (const tb_v4*)(words + parts.head);
    for (tb_u64 v = thread; v < parts.vectors; v += threads) {
      const tb_v4 held = vectors[v];
      const tb_u64 i = parts.head + 4 * v;
      tb_compare(wrong, i, held.x, reference, keys);
      tb_compare(wrong, i + 1, held.y, reference, keys);
      tb_compare(wrong, i + 2, held.z, reference, keys);
      tb_compare(wrong, i + 3, held.w, reference, keys);
    }
    if (thread < parts.head) tb_compare(wrong, thread, words[thread], reference, keys);
    const tb_u64 behind = parts.tail_at + thread;
    if (behind < count) tb_compare(wrong, behind, words[behind], reference, keys);
  }
  if (wrong.words) {
    atomicAdd(found, wrong.words);
    atomicAdd(found + 1, wrong.bytes);
    atomicMin(found + 2, wrong.first);
    atomicMax(found + 3, wrong.last);
    atomicOr(found + 4, wrong.mask);
  }
}

// The sum of all words of a source that holds the pattern of `key`, made without touching memory.
TB_KERNEL(256) tb_expected_sum(tb_u64 count, tb_u32 key, tb_u32 numbers, tb_u64* sum) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  tb_u64 mine = 0;
  for (tb_u64 i = thread; i < count; i += threads) mine += tb_word(i, key, numbers);
  atomicAdd(sum, mine);
}
