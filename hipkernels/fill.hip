// Preparing sources: every slice in one launch.
//
// Slice s holds the pattern of tb_key(s, nonce). `team` blocks share a slice; teams take slices in turn.
TB_KERNEL(256) tb_fill(char* base, tb_u64 nbytes, tb_u64 pitch, tb_u64 slices, tb_u32 nonce, tb_u32 team) {
  const tb_u64 teams = gridDim.x / team;
  const tb_u64 member = (tb_u64)(blockIdx.x % team) * 256 + threadIdx.x;
  const tb_u64 stride = (tb_u64)team * 256;
  const tb_u64 words = nbytes / 4;
  for (tb_u64 slice = blockIdx.x / team; slice < slices; slice += teams) {
    tb_u32* const to = (tb_u32*)(base + slice * pitch);
    const tb_u32 key = tb_key(slice, nonce);
    tb_u64 head = ((16 - ((tb_u64)to & 15)) & 15) / 4;
    if (head > words) head = words;
    const tb_u64 vectors = (words - head) / 4, tail_at = head + 4 * vectors;
    tb_v4* const to_vectors = (tb_v4*)(to + head);
    for (tb_u64 i = member; i < vectors; i += stride) {
      const tb_u64 word = head + 4 * i;
      to_vectors[i] = tb_v4{tb_hash(word) ^ key, tb_hash(word + 1) ^ key, tb_hash(word + 2) ^ key,
                            tb_hash(word + 3) ^ key};
    }
    if (member < head) to[member] = tb_hash(member) ^ key;
    if (member < words - tail_at) to[tail_at + member] = tb_hash(tail_at + member) ^ key;
  }
}
