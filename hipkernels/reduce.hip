// The timed kernel of the G executor where there are several sources or several destinations.
//
// What all sources hold at a place, added up element by element as float32, goes to all destinations; a single source
// is copied bit by bit. Without destinations all words that were read are added to *sum. Without sources the pattern
// of `key` is written. Geometry and slices are as in copy.hip; all ends have the same residue modulo 16. Sources are
// read one after the other, each with TB_UNROLL loads in flight a thread.

constexpr int TB_MAX_ENDS = 8;

struct tb_ends {
  const char* sources[TB_MAX_ENDS];
  char* destinations[TB_MAX_ENDS];
  tb_u32 source_count, destination_count;
};

__device__ inline tb_v4 tb_sum(const tb_v4& a, const tb_v4& b) {
  return tb_v4{tb_sum(a.x, b.x), tb_sum(a.y, b.y), tb_sum(a.z, b.z), tb_sum(a.w, b.w)};
}
__device__ inline tb_u64 tb_total(tb_u32 word) { return word; }
__device__ inline tb_u64 tb_total(const tb_v4& v) { return (tb_u64)v.x + v.y + (tb_u64)v.z + v.w; }
__device__ inline void tb_make(tb_u32& word, tb_u64 at, tb_u32 key) { word = tb_hash(at) ^ key; }
__device__ inline void tb_make(tb_v4& v, tb_u64 at, tb_u32 key) {
  v = tb_v4{tb_hash(at) ^ key, tb_hash(at + 1) ^ key, tb_hash(at + 2) ^ key, tb_hash(at + 3) ^ key};
}

// Does COUNT elements of type T, a stride apart from the `first`-th on; if UP_TO_END those before the `end`-th. Elements
// count from word `skip` of every end; `from` is where in the sources the slice begins.
template <int COUNT, bool UP_TO_END, typename T>
__device__ __forceinline__ void tb_reduce_some(const tb_ends& ends, tb_u64 from, tb_u64 skip, tb_u64 first,
                                               tb_u64 stride, tb_u64 end, tb_u32 key, tb_u64& total) {
  T result[COUNT];
  TB_UNROLLED
  for (int u = 0; u < COUNT; ++u) {
    result[u] = T{};
    if (!ends.source_count) tb_make(result[u], skip + sizeof(T) / 4 * (first + u * stride), key);
  }
  for (tb_u32 s = 0; s < ends.source_count; ++s) {
    const T* const source = (const T*)((const tb_u32*)(ends.sources[s] + from) + skip);
    T held[COUNT];
    TB_UNROLLED
    for (int u = 0; u < COUNT; ++u) held[u] = !UP_TO_END || first + u * stride < end ? source[first + u * stride] : T{};
    TB_UNROLLED
    for (int u = 0; u < COUNT; ++u) TB_SETTLE(held[u]);
    TB_UNROLLED
    for (int u = 0; u < COUNT; ++u) {
      result[u] = s ? tb_sum(result[u], held[u]) : held[u];
      if (!ends.destination_count) total += tb_total(held[u]);
    }
  }
  for (tb_u32 d = 0; d < ends.destination_count; ++d) {
    T* const destination = (T*)((tb_u32*)ends.destinations[d] + skip);
    TB_UNROLLED
    for (int u = 0; u < COUNT; ++u)
      if (!UP_TO_END || first + u * stride < end) destination[first + u * stride] = result[u];
  }
}

TB_KERNEL(TB_BLOCK, 1) tb_reduce(const tb_ends ends, tb_u64 nbytes, tb_u64 pitch, tb_u64 slices, tb_u64 first_slice,
                                 tb_u32 passes, tb_u32 key, tb_u64* sum, tb_u64* stamps) {
  if (!tb_on_duty()) return;
  tb_start(stamps);
  const tb_span span = tb_split(ends.source_count ? ends.sources[0] : ends.destinations[0], nbytes);
  const tb_u64 stride = (tb_u64)tb_members() * TB_BLOCK;
  const tb_u64 thread = (tb_u64)tb_member() * TB_BLOCK + threadIdx.x;
  tb_u64 slice = first_slice, total = 0;
  for (tb_u32 pass = 0; pass < passes; ++pass) {
    const tb_u64 from = slice * pitch;
    tb_u64 i = thread;
    for (; i + (TB_UNROLL - 1) * stride < span.vectors; i += TB_UNROLL * stride)
      tb_reduce_some<TB_UNROLL, false, tb_v4>(ends, from, span.head, i, stride, span.vectors, key, total);
    tb_reduce_some<TB_UNROLL, true, tb_v4>(ends, from, span.head, i, stride, span.vectors, key, total);
    tb_reduce_some<1, true, tb_u32>(ends, from, 0, thread, stride, span.head, key, total);
    tb_reduce_some<1, true, tb_u32>(ends, from, 0, span.tail_at + thread, stride, span.words, key, total);
    if (++slice == slices) slice = 0;
  }
  if (!ends.destination_count) atomicAdd(sum, total);
  tb_stop(stamps);
}
