// Preparing sources: every slice in one launch.
//
// Slice s holds the pattern of tb_key(s, nonce), as numbers where sources are added up. `team` blocks share a slice; teams take slices in turn.
TB_KERNEL(256) tb_fill(char* base, tb_u64 nbytes, tb_u64 pitch, tb_u64 slices, tb_u32 nonce, tb_u32 team,
                    tb_u32 numbers) {
  const tb_u64 teams = gridDim.x / team;
  const tb_u64 member = (tb_u64)(blockIdx.x % team) * 256 + threadIdx.x;
  const tb_u64 stride = (tb_u64)team * 256;
  for (tb_u64 slice = blockIdx.x / team; slice < slices; slice += teams) {
    tb_u32* const to = (tb_u32*)(base + slice * pitch);
    const tb_u32 key = tb_key(slice, nonce);
    const tb_span span = tb_split(to, nbytes);
    tb_v4* const to_vectors = (tb_v4*)(to + span.head);
    for (tb_u64 i = member; i < span.vectors; i += stride) {
      const tb_u64 word = span.head + 4 * i;
      to_vectors[i] = tb_v4{tb_word(word, key, numbers), tb_word(word + 1, key, numbers),
                            tb_word(word + 2, key, numbers), tb_word(word + 3, key, numbers)};
    }
    if (member < span.head) to[member] = tb_word(member, key, numbers);
    const tb_u64 behind = span.tail_at + member;
    if (behind < span.words) to[behind] = tb_word(behind, key, numbers);
  }
}
