// LL flag protocols: one GPU streams lines into a ring in the other's memory, the other polls the flags in them.
//
// Compiled once a protocol. TB_LINE is a line's size in bytes, TB_ORDER what makes data arrive before its flag:
// PACKED (LL, 16-byte lines): each 8-byte word carries 4 bytes of data and the flag, so nothing needs an order;
// DRAINED (sc): the wave's data stores are acknowledged before the flag is stored;
// WRITTEN_BACK (sc+wb): the same, and a system fence for every line;
// FENCED (tf): all data, one system fence, all flags.
// Every word is compared where it arrives. The sum of the words taken has one right value: it tells of those that nobody
// took, or took twice, which no comparison sees. With TB_HASHED payload is hashed, else it costs two multiplications.
//
// An iteration is one message: the last of the receiver's blocks to have it all stores one 8-byte ACK, and no block of
// the sender goes on before. So at most one message is under way, and a line is never overwritten unread. Flags only
// grow, over all launches on a ring: an old line never looks like a new one.
#define TB_THREADS 256
#define TB_PACKED 0
#define TB_DRAINED 1
#define TB_WRITTEN_BACK 2
#define TB_FENCED 3

#define TB_WORDS (TB_LINE / 8)  // of a line
#if TB_ORDER == TB_PACKED
#define TB_LANES 1  // that share a line
#else
#define TB_LANES (TB_WORDS / TB_WORDS_A_LANE)  // the last one holds the flag
#endif
#define TB_ROWS (TB_THREADS / TB_LANES)  // lines a block moves side by side
#define TB_AHEAD 4  // loads that a receiver's thread has under way

// What one side has to tell, in its own GPU's memory. `late` is iteration << 32 | block of the earliest wait that
// ended without what it waited for, all ones if none did. `wrong_words`, `first`, `last` and `mask` are about 32-bit
// words of the message, `first` being all ones where none is wrong; `sum` adds up tb_place of its 8-byte words.
struct tb_ll_report {
  tb_u64 late, wrong_words, first, last, mask, sum, wrong_bytes;
};

// A wait that ends by itself. The clock is looked at after every TB_POLLS_A_LOOK polls only, and from then on.
struct tb_wait {
  tb_u32 polls;
  tb_u64 began;
};

__device__ inline bool tb_looks_at_clock(tb_wait& wait) { return ++wait.polls % TB_POLLS_A_LOOK == 0; }

__device__ inline bool tb_is_over(tb_wait& wait, tb_u64 ticks) {
  const tb_u64 now = tb_deadline_clock();
  if (!wait.began) wait.began = now;
  return now - wait.began > ticks;
}

__device__ inline void tb_give_up(tb_ll_report* report, tb_u32 iteration, tb_u32* leaving) {
  atomicMin(&report->late, (tb_u64)iteration << 32 | blockIdx.x);
  *leaving = 1;
}

// Tells word `index` of the message with this flag from all others, and adds up to what the host can work out.
__device__ inline tb_u64 tb_place(tb_u64 index, tb_u64 flag) {
  return index * 0x9E3779B97F4A7C15ull + flag * 0xD1B54A32D192ED03ull;
}

// What that word is.
__device__ inline tb_u64 tb_payload(tb_u64 index, tb_u64 flag) {
#if TB_HASHED
  tb_u64 x = index + flag * 0x9E3779B97F4A7C15ull;  // splitmix64's increment and finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
#else
  return tb_place(index, flag);
#endif
}

struct tb_taken {
  tb_u64 sum, wrong_words, wrong_bytes;
};

// Takes in one word that arrived, or none where `is_data` is false: what a thread has loaded is looked at in any case, so
// that no path leads past the wait for it. A wrong word is reported at once: no compiler moves that behind the barrier
// before the ACK, and so every load is over before the ACK lets its line be overwritten.
__device__ inline void tb_take(tb_taken& taken, tb_ll_report* report, bool is_data, tb_u64 index, tb_u64 flag,
                               tb_u64 word) {
  const tb_u64 difference = word ^ tb_payload(index, flag);
  taken.sum += is_data ? difference ^ tb_place(index, flag) : 0;
  if (!difference || !is_data) return;
  const tb_u32 low = (tb_u32)difference, high = (tb_u32)(difference >> 32);
  tb_u64 bytes = difference | difference >> 4;  // the lowest bit of each tells, in the end, whether any was wrong
  bytes |= bytes >> 2;
  bytes |= bytes >> 1;
  taken.wrong_words += (low != 0) + (high != 0);
  taken.wrong_bytes += (bytes & 0x0101010101010101ull) * 0x0101010101010101ull >> 56;
  atomicMin(&report->first, 2 * index + (low == 0));
  atomicMax(&report->last, 2 * index + (high != 0));
  atomicOr(&report->mask, (tb_u64)(low | high));
}

// A block's lines: in each of its turns a set of TB_ROWS, the sets of all blocks lying side by side. Blocks for which
// no set is left do nothing at all.
struct tb_share {
  tb_u32 lines, turns, workers;
};

__device__ inline tb_share tb_share_of(tb_u32 lines) {
  const tb_u32 sets = (lines + TB_ROWS - 1) / TB_ROWS;
  const tb_u32 workers = sets < gridDim.x ? sets : gridDim.x;
  return {lines, blockIdx.x < workers ? (sets - blockIdx.x + workers - 1) / workers : 0, workers};
}

// The line in row `row` of a turn; behind the last one where the message has none there.
__device__ inline tb_u32 tb_line(const tb_share& share, tb_u32 turn, tb_u32 row) {
  return turn < share.turns ? (turn * share.workers + blockIdx.x) * TB_ROWS + row : share.lines;
}

#if TB_ORDER == TB_PACKED

__device__ inline void tb_put(tb_u64* line, tb_u64 word, tb_u64 flag) {
  tb_store_pair(line, (word & 0xffffffffu) | flag << 32, word >> 32 | flag << 32);
}

// Both halves carry the flag: each is whole by itself, but one may come before the other.
__device__ inline bool tb_has_come(const tb_pair& line, tb_u64 flag) {
  return ((line.first ^ flag << 32) | (line.second ^ flag << 32)) >> 32 == 0;
}

__device__ inline tb_u64 tb_data(const tb_pair& line) { return (line.first & 0xffffffffu) | line.second << 32; }

__device__ inline void tb_send_message(tb_u64* ring, const tb_share& share, tb_u64 flag) {
  for (tb_u32 turn = 0; turn < share.turns; ++turn) {
    const tb_u32 line = tb_line(share, turn, threadIdx.x);
    if (line < share.lines) tb_put(ring + 2ull * line, tb_payload(line, flag), flag);
  }
}

__device__ inline void tb_receive_message(tb_u64* ring, const tb_share& share, tb_u64 flag, tb_u32 iteration,
                                          tb_u64 ticks, tb_taken& taken, tb_ll_report* report, tb_u32* leaving) {
  for (tb_u32 turn = 0; turn < share.turns; turn += TB_AHEAD) {
    tb_u32 line[TB_AHEAD];
    tb_pair words[TB_AHEAD];
    TB_UNROLLED
    for (int a = 0; a < TB_AHEAD; ++a) {
      line[a] = tb_line(share, turn + a, threadIdx.x);
      words[a] = {flag << 32, flag << 32};  // where there is no line, it has come
      if (line[a] < share.lines) words[a] = tb_load_pair(ring + 2ull * line[a]);
    }
    TB_UNROLLED
    for (int a = 0; a < TB_AHEAD; ++a) {
      TB_SETTLE(words[a].first);
      TB_SETTLE(words[a].second);
    }
    TB_UNROLLED
    for (int a = 0; a < TB_AHEAD; ++a) {
      tb_wait wait = {};
      while (!tb_has_come(words[a], flag)) {
        if (tb_looks_at_clock(wait) && tb_is_over(wait, ticks)) return tb_give_up(report, iteration, leaving);
        words[a] = tb_load_pair(ring + 2ull * line[a]);
      }
      tb_take(taken, report, line[a] < share.lines, line[a], flag, tb_data(words[a]));
    }
  }
}

#else

__device__ inline tb_u64* tb_flag_of(tb_u64* ring, tb_u32 line) {
  return ring + (tb_u64)line * TB_WORDS + TB_WORDS - 1;
}

// Stores this lane's words of the data of a line. Index and place differ, because every line has a flag in it. A flag
// that lies in the last lane's pair is stored as it still is: one instruction for all lanes, and whole lines.
__device__ inline void tb_put(tb_u64* ring, tb_u32 line, tb_u32 lane, tb_u64 flag) {
  tb_u64* const to = ring + (tb_u64)line * TB_WORDS + lane * TB_WORDS_A_LANE;
  const tb_u64 index = (tb_u64)line * (TB_WORDS - 1) + lane * TB_WORDS_A_LANE;
#if TB_WORDS_A_LANE == 2
  tb_store_pair(to, tb_payload(index, flag), lane < TB_LANES - 1 ? tb_payload(index + 1, flag) : flag - 1);
#else
  if (lane < TB_LANES - 1) tb_store_system(to, tb_payload(index, flag));
#endif
}

// Reads `TB_AHEAD` lines' data, all of whose flags have come.
__device__ inline void tb_get(const tb_u64* ring, const tb_u32 (&line)[TB_AHEAD], tb_u32 lines, tb_u64 flag,
                              tb_taken& taken, tb_ll_report* report) {
  const tb_u32 lane = threadIdx.x % TB_LANES;
  tb_pair words[TB_AHEAD] = {};
  TB_UNROLLED
  for (int a = 0; a < TB_AHEAD; ++a) {
    if (line[a] >= lines) continue;
    const tb_u64* const from = ring + (tb_u64)line[a] * TB_WORDS + lane * TB_WORDS_A_LANE;
    if (TB_WORDS_A_LANE == 2)
      words[a] = tb_load_pair(from);
    else if (lane < TB_LANES - 1)
      words[a].first = tb_load_system(from);
  }
  TB_UNROLLED
  for (int a = 0; a < TB_AHEAD; ++a) TB_SETTLE(words[a].first);
  TB_UNROLLED
  for (int a = 0; a < TB_AHEAD; ++a) {
    const tb_u64 index = (tb_u64)line[a] * (TB_WORDS - 1) + lane * TB_WORDS_A_LANE;
    const bool has_line = line[a] < lines, holds_flag = lane == TB_LANES - 1;
    tb_take(taken, report, has_line && (TB_WORDS_A_LANE == 2 || !holds_flag), index, flag, words[a].first);
    if (TB_WORDS_A_LANE == 2) tb_take(taken, report, has_line && !holds_flag, index + 1, flag, words[a].second);
  }
}

#if TB_ORDER != TB_FENCED

__device__ inline void tb_send_message(tb_u64* ring, const tb_share& share, tb_u64 flag) {
  const tb_u32 lane = threadIdx.x % TB_LANES;
  for (tb_u32 turn = 0; turn < share.turns; ++turn) {
    const tb_u32 line = tb_line(share, turn, threadIdx.x / TB_LANES);
    if (line < share.lines) tb_put(ring, line, lane, flag);
    tb_wave_sync();  // the lanes whose data the flag speaks for have all stored it
    tb_drain();
    if (TB_ORDER == TB_WRITTEN_BACK) tb_fence_system();
    if (line >= share.lines || lane != TB_LANES - 1) continue;
    if (TB_ORDER == TB_WRITTEN_BACK)
      tb_store_system(tb_flag_of(ring, line), flag);
    else
      tb_store_flag(tb_flag_of(ring, line), flag);
  }
}

// The wave polls together and then loads together: a lane that had loaded its data along with the flag could hold what
// was there before.
__device__ inline void tb_receive_message(tb_u64* ring, const tb_share& share, tb_u64 flag, tb_u32 iteration,
                                          tb_u64 ticks, tb_taken& taken, tb_ll_report* report, tb_u32* leaving) {
  const bool holds_flag = threadIdx.x % TB_LANES == TB_LANES - 1;
  for (tb_u32 turn = 0; turn < share.turns; turn += TB_AHEAD) {
    tb_u32 line[TB_AHEAD];
    TB_UNROLLED
    for (int a = 0; a < TB_AHEAD; ++a) line[a] = tb_line(share, turn + a, threadIdx.x / TB_LANES);
    tb_wait wait = {};
    for (;;) {
      tb_u64 seen[TB_AHEAD] = {}, missing = 0;
      TB_UNROLLED
      for (int a = 0; a < TB_AHEAD; ++a)
        if (holds_flag && line[a] < share.lines) seen[a] = tb_load_system(tb_flag_of(ring, line[a]));
      TB_UNROLLED
      for (int a = 0; a < TB_AHEAD; ++a) TB_SETTLE(seen[a]);
      TB_UNROLLED
      for (int a = 0; a < TB_AHEAD; ++a) missing |= holds_flag && line[a] < share.lines ? seen[a] ^ flag : 0;
      if (!tb_any(missing)) break;
      if (tb_looks_at_clock(wait) && tb_any(tb_is_over(wait, ticks))) return tb_give_up(report, iteration, leaving);
    }
    tb_get(ring, line, share.lines, flag, taken, report);
  }
}

#else

// After the fence and the barrier any thread may store the flag of any line of the block.
__device__ inline void tb_send_message(tb_u64* ring, const tb_share& share, tb_u64 flag) {
  for (tb_u32 turn = 0; turn < share.turns; ++turn) {
    const tb_u32 line = tb_line(share, turn, threadIdx.x / TB_LANES);
    if (line < share.lines) tb_put(ring, line, threadIdx.x % TB_LANES, flag);
  }
  tb_fence_system();
  __syncthreads();
  for (tb_u32 i = threadIdx.x; i < share.turns * TB_ROWS; i += TB_THREADS) {
    const tb_u32 line = tb_line(share, i / TB_ROWS, i % TB_ROWS);
    if (line < share.lines) tb_store_system(tb_flag_of(ring, line), flag);
  }
}

// All flags, the threads of the block sharing them; then all data.
__device__ inline void tb_receive_message(tb_u64* ring, const tb_share& share, tb_u64 flag, tb_u32 iteration,
                                          tb_u64 ticks, tb_taken& taken, tb_ll_report* report, tb_u32* leaving) {
  bool late = false;
  for (tb_u32 i = threadIdx.x; i < share.turns * TB_ROWS; i += TB_THREADS) {
    const tb_u32 line = tb_line(share, i / TB_ROWS, i % TB_ROWS);
    tb_wait wait = {};
    while (!late && line < share.lines && tb_load_system(tb_flag_of(ring, line)) != flag)
      late = tb_looks_at_clock(wait) && tb_is_over(wait, ticks);
  }
  if (late) tb_give_up(report, iteration, leaving);
  __syncthreads();
  if (*leaving) return;
  for (tb_u32 turn = 0; turn < share.turns; turn += TB_AHEAD) {
    tb_u32 line[TB_AHEAD];
    TB_UNROLLED
    for (int a = 0; a < TB_AHEAD; ++a) line[a] = tb_line(share, turn + a, threadIdx.x / TB_LANES);
    tb_get(ring, line, share.lines, flag, taken, report);
  }
}

#endif
#endif

// stamps[0] is when block 0 began, stamps[1 + i] when it had the ACK of iteration i.
TB_KERNEL(TB_THREADS, 1) tb_ll_send(tb_u64* ring, const tb_u64* ack, tb_u64* stamps, tb_ll_report* report,
                                    tb_u32 lines, tb_u32 iterations, tb_u64 first_flag, tb_u64 ticks) {
  __shared__ tb_u32 leaving;
  const tb_share share = tb_share_of(lines);
  if (!share.turns) return;
  if (threadIdx.x == 0) {
    leaving = 0;
    if (blockIdx.x == 0) tb_stamp(stamps, 0);
  }
  __syncthreads();
  for (tb_u32 i = 0; i < iterations; ++i) {
    const tb_u64 flag = first_flag + i;
    tb_send_message(ring, share, flag);
    if (threadIdx.x == 0) {
      tb_wait wait = {};
      while (tb_load_system(ack) < flag) {
        if (!tb_looks_at_clock(wait) || !tb_is_over(wait, ticks)) continue;
        tb_give_up(report, i, &leaving);
        break;
      }
      tb_lap(blockIdx.x == 0 ? stamps + 1 + i : nullptr);
    }
    __syncthreads();
    if (leaving) return;
  }
}

// `arrived` is 0 at the start: it counts the messages that blocks have taken, over all iterations.
TB_KERNEL(TB_THREADS, 1) tb_ll_receive(tb_u64* ring, tb_u64* ack, tb_u64* arrived, tb_ll_report* report,
                                       tb_u32 lines, tb_u32 iterations, tb_u64 first_flag, tb_u64 ticks) {
  __shared__ tb_u32 leaving;
  const tb_share share = tb_share_of(lines);
  if (!share.turns) return;
  if (threadIdx.x == 0) leaving = 0;
  __syncthreads();
  tb_taken taken = {};
  for (tb_u32 i = 0; i < iterations; ++i) {
    const tb_u64 flag = first_flag + i;
    tb_receive_message(ring, share, flag, i, ticks, taken, report, &leaving);
    __syncthreads();
    if (leaving) break;
    const tb_u64 all = (tb_u64)(i + 1) * share.workers;
    if (threadIdx.x != 0) continue;
    if (share.workers == 1 || atomicAdd(arrived, (tb_u64)1) + 1 == all) tb_store_system(ack, flag);
  }
  atomicAdd(&report->sum, taken.sum);
  if (!taken.wrong_words) return;
  atomicAdd(&report->wrong_words, taken.wrong_words);
  atomicAdd(&report->wrong_bytes, taken.wrong_bytes);
}

#if TB_ORDER == TB_PACKED

// One line to and fro: the side that leads stores it in `theirs` and waits for it to come back in `mine`. Only that side
// has a seed, the other one has 0: it cannot make the line, but only send back what came.
// stamps[0] is when this side began, stamps[1 + i] when lap i was over.
TB_KERNEL(1) tb_ll_ping_pong(tb_u64* theirs, const tb_u64* mine, tb_u64* stamps, tb_ll_report* report, tb_u64 seed,
                             tb_u32 laps, tb_u64 first_flag, tb_u64 ticks) {
  tb_u32 leaving = 0;
  tb_taken taken = {};
  tb_stamp(stamps, 0);
  for (tb_u32 i = 0; i < laps && !leaving; ++i) {
    const tb_u64 flag = first_flag + i;
    if (seed) tb_put(theirs, tb_payload(i, flag + seed), flag);
    tb_pair line = tb_load_pair(mine);
    tb_wait wait = {};
    while (!leaving && !tb_has_come(line, flag)) {
      if (tb_looks_at_clock(wait) && tb_is_over(wait, ticks)) tb_give_up(report, i, &leaving);
      line = tb_load_pair(mine);
    }
    if (leaving) break;
    if (!seed) tb_put(theirs, tb_data(line), flag);
    tb_lap(stamps + 1 + i);
    if (seed) tb_take(taken, report, true, i, flag + seed, tb_data(line));
  }
  report->sum = taken.sum;
  report->wrong_words = taken.wrong_words;
  report->wrong_bytes = taken.wrong_bytes;
}

#endif
