// The timed kernels of the G executor: one copy, several at the same time, read-only and write-only.
//
// nbytes is a multiple of 4. Source and destination have the same residue modulo 16, so one head of 0-3 words aligns
// both. A block takes every team-th row of TB_BLOCK vectors and keeps TB_UNROLL loads in flight per thread:
// a pull must cover the link's round trip with loads. `passes` repeats the copy inside the launch, each pass from the
// next slice: repeating one slice would let a cache answer instead of the link.
//
// A thread writes the same addresses in every pass, in program order, so the last pass is what the destination holds.
// Source and destination never overlap; saying so lets the next loads pass the last stores: 3 % at 4M, 9 % for local
// copies of 16M on H200.

// What block `member` of the `team` that shares a copy does of it.
__device__ __forceinline__ void tb_copy_share(const char* __restrict__ source, char* __restrict__ destination,
                                              tb_u64 nbytes, tb_u64 pitch, tb_u64 slices, tb_u64 first_slice,
                                              tb_u32 passes, tb_u32 member, tb_u32 team) {
  const tb_span span = tb_split(destination, nbytes);
  const tb_u64 stride = (tb_u64)team * TB_BLOCK;
  const tb_u64 thread = (tb_u64)member * TB_BLOCK + threadIdx.x;
  tb_u32* const to = (tb_u32*)destination;
  tb_v4* __restrict__ const to_vectors = (tb_v4*)(to + span.head);
  tb_u64 slice = first_slice;
  for (tb_u32 pass = 0; pass < passes; ++pass) {
    const tb_u32* const from = (const tb_u32*)(source + slice * pitch);
    const tb_v4* __restrict__ const from_vectors = (const tb_v4*)(from + span.head);
    tb_u64 i = thread;
    for (; i + (TB_UNROLL - 1) * stride < span.vectors; i += TB_UNROLL * stride) {
      tb_v4 held[TB_UNROLL];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) held[u] = from_vectors[i + u * stride];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) to_vectors[i + u * stride] = held[u];
    }
    if (i < span.vectors) {
      // A value for every lane keeps the array in registers: left undefined, NVIDIA's compiler spills.
      tb_v4 held[TB_UNROLL];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u)
        held[u] = i + u * stride < span.vectors ? from_vectors[i + u * stride] : tb_v4{0, 0, 0, 0};
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u)
        if (i + u * stride < span.vectors) to_vectors[i + u * stride] = held[u];
    }
    if (thread < span.head) to[thread] = from[thread];
    if (thread < span.words - span.tail_at) to[span.tail_at + thread] = from[span.tail_at + thread];
    if (++slice == slices) slice = 0;
  }
}

TB_KERNEL(TB_BLOCK, 2) tb_copy(const char* __restrict__ source, char* __restrict__ destination, tb_u64 nbytes,
                               tb_u64 pitch, tb_u64 slices, tb_u64 first_slice, tb_u32 passes, tb_u64* stamps) {
  if (!tb_on_duty()) return;
  tb_start(stamps);
  tb_copy_share(source, destination, nbytes, pitch, slices, first_slice, passes, tb_member(), tb_members());
  tb_stop(stamps);
}

struct tb_leg {
  TB_GLOBAL const char* source;
  TB_GLOBAL char* destination;
};

// Several copies of equal size at the same time, `team` blocks each. They walk through their slices alike.
TB_KERNEL(TB_BLOCK, 2) tb_copy_many(const tb_leg* legs, tb_u32 team, tb_u64 nbytes, tb_u64 pitch, tb_u64 slices,
                                    tb_u64 first_slice, tb_u32 passes, tb_u64* stamps) {
  if (!tb_on_duty()) return;
  tb_start(stamps);
  const tb_leg leg = legs[tb_member() / team];
  TB_IS_GLOBAL(leg.source);
  TB_IS_GLOBAL(leg.destination);
  tb_copy_share((const char*)leg.source, (char*)leg.destination, nbytes, pitch, slices, first_slice, passes,
                tb_member() % team, team);
  tb_stop(stamps);
}

__device__ inline tb_u64 tb_added_up(const tb_v4& words) {
  return (tb_u64)words.x + words.y + (tb_u64)words.z + words.w;
}

// Reads and adds up every word of every pass. The sum is the proof that the bytes were read, and it keeps the
// compiler from dropping loads whose values nobody uses.
TB_KERNEL(TB_BLOCK, 2) tb_read(const char* source, tb_u64 nbytes, tb_u64 pitch, tb_u64 slices, tb_u64 first_slice,
                               tb_u32 passes, tb_u64* sum, tb_u64* stamps) {
  if (!tb_on_duty()) return;
  tb_start(stamps);
  const tb_span span = tb_split(source, nbytes);
  const tb_u64 stride = (tb_u64)tb_members() * TB_BLOCK;
  const tb_u64 thread = (tb_u64)tb_member() * TB_BLOCK + threadIdx.x;
  tb_u64 slice = first_slice, mine = 0;
  for (tb_u32 pass = 0; pass < passes; ++pass) {
    const tb_u32* const from = (const tb_u32*)(source + slice * pitch);
    const tb_v4* const from_vectors = (const tb_v4*)(from + span.head);
    tb_u64 i = thread;
    for (; i + (TB_UNROLL - 1) * stride < span.vectors; i += TB_UNROLL * stride) {
      tb_v4 held[TB_UNROLL];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) held[u] = from_vectors[i + u * stride];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) mine += tb_added_up(held[u]);
    }
    if (i < span.vectors) {
      tb_v4 held[TB_UNROLL];
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u)
        held[u] = i + u * stride < span.vectors ? from_vectors[i + u * stride] : tb_v4{0, 0, 0, 0};
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) TB_SETTLE(held[u]);
      TB_UNROLLED
      for (int u = 0; u < TB_UNROLL; ++u) mine += tb_added_up(held[u]);
    }
    if (thread < span.head) mine += from[thread];
    if (thread < span.words - span.tail_at) mine += from[span.tail_at + thread];
    if (++slice == slices) slice = 0;
  }
  atomicAdd(sum, mine);
  tb_stop(stamps);
}

// Writes the pattern of `key`; later passes write it again.
TB_KERNEL(TB_BLOCK) tb_write(char* destination, tb_u64 nbytes, tb_u32 key, tb_u32 passes, tb_u64* stamps) {
  if (!tb_on_duty()) return;
  tb_start(stamps);
  const tb_span span = tb_split(destination, nbytes);
  const tb_u64 stride = (tb_u64)tb_members() * TB_BLOCK;
  const tb_u64 thread = (tb_u64)tb_member() * TB_BLOCK + threadIdx.x;
  tb_u32* const to = (tb_u32*)destination;
  tb_v4* const to_vectors = (tb_v4*)(to + span.head);
  for (tb_u32 pass = 0; pass < passes; ++pass) {
    for (tb_u64 i = thread; i < span.vectors; i += stride) {
      const tb_u64 word = span.head + 4 * i;
      to_vectors[i] = tb_v4{tb_hash(word) ^ key, tb_hash(word + 1) ^ key, tb_hash(word + 2) ^ key,
                            tb_hash(word + 3) ^ key};
    }
    if (thread < span.head) to[thread] = tb_hash(thread) ^ key;
    if (thread < span.words - span.tail_at) to[span.tail_at + thread] = tb_hash(span.tail_at + thread) ^ key;
  }
  tb_stop(stamps);
}
