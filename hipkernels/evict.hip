// Reads and rewrites one word of every 128-byte line: memory larger than a cache pushes everything else out of it.
TB_KERNEL(256) tb_evict(tb_u32* words, tb_u64 lines) {
  const tb_u64 thread = (tb_u64)blockIdx.x * 256 + threadIdx.x, threads = (tb_u64)gridDim.x * 256;
  for (tb_u64 line = thread; line < lines; line += threads) words[line * 32] += 1;
}
