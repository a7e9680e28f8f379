// Runs kernels lane by lane on memory that is as weak as a GPU's may be, so that an order nobody asked for is missing.
//
// Everything happens in one OS thread and is drawn from the seed: a run repeats exactly, and its clock counts ticks of
// the scheduler. Lanes are fibres; waves, and on NVIDIA lanes, are held up at random. Three models:
// STRONG: a store lands at once, a load returns what is there. The lanes of a wave go together.
// AMD: stores wait in a buffer of the wave and land in any order, but for those to one word. A drain or a fence waits
//   for the whole wave's; a releasing store is any store, because the header's real one is. The lanes go together.
// NVIDIA: the same buffer, but lanes run apart, and a fence or a releasing store waits only for the lane's own stores
//   and for those that a meeting of the warp has joined to it. A drain does nothing.
// In the weak models a load may also return what was there at any moment since the lane last had to wait for something:
// loads that nothing makes wait for each other are performed in any order.
//
// What it cannot show: loads that are performed late, after a barrier that does not wait for them; words torn in two;
// a vote in the place of a wave sync, which the header's branch for emulators spells alike; what a compiler does to the
// source. Weaker than the real thing, which can only raise a false alarm: a block's barrier joins no stores to a fence
// behind it. No kernel here loads what it stores itself, so a lane does not look for its own stores.
#include "weak_memory.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "fibre.hpp"

weak::Index threadIdx, blockIdx, gridDim;
extern char __start_block_shared[] __attribute__((visibility("hidden")));
extern char __stop_block_shared[] __attribute__((visibility("hidden")));

namespace weak {
namespace {

struct Block;
struct Wave;

struct Store {
  u64* word;
  u64 value, due;
  unsigned lane;
  bool joined;
};

struct Lane {
  Wave* wave;
  unsigned thread;
  emulator::Context context = {};
  enum { READY, WAITING, ENDED } state = READY;
  u64 asleep_until = 0;
  size_t since = 0, last_load = 0;  // moments: how many stores had landed
  std::vector<const u64*> loaded;   // since then
};

// Those who meet: the lanes of a wave at a vote, those of a block at its barrier. Lanes that have ended are not missed.
struct Meeting {
  unsigned members = 0, present = 0;
  bool any = false, result = false;
};

struct Wave {
  Block* block;
  size_t number;
  std::vector<Lane*> lanes;
  unsigned ready = 0;
  Meeting vote;
  std::vector<Store> stores;
  u64 asleep_until = 0;
};

struct Block {
  const Launch* launch;
  unsigned index;
  Meeting barrier;
  std::vector<Wave*> waves;
  std::vector<char> shared;
};

struct Landed {
  const u64* word;
  u64 before;
};

struct Machine {
  Settings settings;
  u64 random_state, now = 0, stores_to_lost_word = 0;
  unsigned alive = 0;
  std::deque<Block> blocks;
  std::deque<Wave> waves;
  std::deque<Lane> lanes;
  std::vector<Landed> landed;
  // When a store of which wave is due; the wave may have been drained meanwhile. By number: addresses are no order.
  std::priority_queue<std::pair<u64, size_t>, std::vector<std::pair<u64, size_t>>, std::greater<>> due;
  emulator::StackPool stacks;
  emulator::Context scheduler;
  Lane* running = nullptr;
  std::vector<Lane*> ready;  // of the wave that is visited
  Block* at_home = nullptr;  // whose shared memory lies in the section
};

Machine* machine;

u64 below(u64 bound) {
  u64& x = machine->random_state;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return (x >> 20) % bound;
}

// How long a store or a wave is held up: mostly a moment, at times so long that everyone else has gone on by then.
u64 some_time() {
  static constexpr unsigned TURNS[] = {1, 1, 1, 1, 8, 8, 8, 64};
  return below(TURNS[below(8)] * machine->waves.size());
}

template <class WaveOrLane>
void hold_up(WaveOrLane& one, u64 once_in) {
  if (below(once_in) == 0) one.asleep_until = machine->now + some_time();
}

// ---- memory ----

void land(const Store& store) {
  if (store.word == machine->settings.lost_word && ++machine->stores_to_lost_word == machine->settings.lost_store)
    return;
  machine->landed.push_back({store.word, *store.word});
  *store.word = store.value;
}

template <class Chosen>
void land_those(Wave& wave, Chosen chosen) {
  size_t kept = 0;
  for (size_t i = 0; i < wave.stores.size(); ++i) {
    if (chosen(wave.stores[i]))
      land(wave.stores[i]);
    else
      wave.stores[kept++] = wave.stores[i];
  }
  wave.stores.resize(kept);
}

void drain(Wave& wave) {
  land_those(wave, [](const Store&) { return true; });
}

void release(Lane& lane) {
  land_those(*lane.wave, [&](const Store& store) { return store.joined || store.lane == lane.thread; });
}

void land_due() {
  while (!machine->due.empty() && machine->due.top().first <= machine->now) {
    Wave& wave = machine->waves[machine->due.top().second];
    machine->due.pop();
    land_those(wave, [](const Store& store) { return store.due <= machine->now; });
  }
}

// ---- lanes ----

// Back to the scheduler, until it resumes this lane.
void leave() { emulator::switch_context(machine->running->context, machine->scheduler); }

void stop(Lane& lane, decltype(Lane::state) why) {
  lane.state = why;
  --lane.wave->ready;
}

void has_waited(Lane& lane, size_t until) {
  lane.since = until;
  lane.loaded.clear();
}

template <class Lanes>
void end_if_all_are_there(Meeting& meeting, Lanes for_each_lane) {
  if (!meeting.present || meeting.present < meeting.members) return;
  meeting.result = meeting.any;
  meeting.present = meeting.any = 0;
  for_each_lane([](Lane& lane) {
    if (lane.state != Lane::WAITING) return;
    lane.state = Lane::READY;
    ++lane.wave->ready;
    has_waited(lane, machine->landed.size());
  });
}

void end_vote(Wave& wave) {
  end_if_all_are_there(wave.vote, [&](auto visit) {
    for (Lane* lane : wave.lanes) visit(*lane);
    for (Store& store : wave.stores) store.joined = true;
  });
}

void end_barrier(Block& block) {
  end_if_all_are_there(block.barrier, [&](auto visit) {
    for (Wave* wave : block.waves) {
      for (Lane* lane : wave->lanes) visit(*lane);
      hold_up(*wave, 8);
    }
  });
}

void lane_main() {
  Lane& lane = *machine->running;
  Block& block = *lane.wave->block;
  block.launch->kernel(block.launch->arguments);
  stop(lane, Lane::ENDED);
  --machine->alive;
  --lane.wave->vote.members;
  --block.barrier.members;
  end_vote(*lane.wave);
  end_barrier(block);
  leave();
}

void resume(Lane& lane) {
  machine->running = &lane;
  threadIdx.x = lane.thread;
  emulator::switch_context(machine->scheduler, lane.context);
}

// ---- scheduler ----

void start(const Launch& launch) {
  const size_t shared = __stop_block_shared - __start_block_shared;
  for (unsigned index = 0; index < launch.blocks; ++index) {
    machine->blocks.push_back({&launch, index, {}, {}, std::vector<char>(shared, 0x5A)});  // nobody clears it on a GPU
    Block& block = machine->blocks.back();
    for (unsigned thread = 0; thread < launch.threads; ++thread) {
      if (thread % machine->settings.lanes_a_wave == 0) {
        machine->waves.push_back({&block, machine->waves.size()});
        block.waves.push_back(&machine->waves.back());
      }
      Wave& wave = machine->waves.back();
      machine->lanes.push_back({&wave, thread});
      Lane& lane = machine->lanes.back();
      // Stacks lie a power of two apart; ends a little apart keep them out of one another's cache sets.
      const size_t size = emulator::StackPool::STACK - machine->lanes.size() % 64 * 256;
      emulator::prepare(lane.context, machine->stacks.take(), size, lane_main);
      wave.lanes.push_back(&lane);
      ++wave.ready;
      ++wave.vote.members;
      ++block.barrier.members;
      ++machine->alive;
    }
  }
}

void bring_home(Block& block) {
  if (machine->at_home == &block) return;
  if (machine->at_home) std::copy(__start_block_shared, __stop_block_shared, machine->at_home->shared.begin());
  std::copy(block.shared.begin(), block.shared.end(), __start_block_shared);
  machine->at_home = &block;
  blockIdx.x = block.index;
  gridDim.x = block.launch->blocks;
}

// Lanes that go together run in order, each up to its next meeting or poll; of others any may run, in any order.
void visit(Wave& wave) {
  std::vector<Lane*>& ready = machine->ready;
  ready.clear();
  for (Lane* lane : wave.lanes)
    if (lane->state == Lane::READY && lane->asleep_until <= machine->now) ready.push_back(lane);
  size_t count = ready.size();
  if (machine->settings.model == NVIDIA) {
    for (size_t i = count; i > 1; --i) std::swap(ready[i - 1], ready[below(i)]);
    count = below(count + 1);
  }
  bring_home(*wave.block);
  for (size_t i = 0; i < count; ++i) {
    resume(*ready[i]);
    if (machine->settings.model == NVIDIA) hold_up(*ready[i], 32);
  }
  hold_up(wave, 8);
}

// The next wave that goes on; null if all are asleep or wait.
Wave* choose() {
  const size_t count = machine->waves.size(), first = below(count);
  for (size_t i = 0; i < count; ++i) {
    Wave& wave = machine->waves[(first + i) % count];
    if (wave.ready && wave.asleep_until <= machine->now) return &wave;
  }
  return nullptr;
}

bool run_to_the_end() {
  while (machine->alive) {
    if (++machine->now > machine->settings.limit) return false;  // or they wait for lanes that will not come
    land_due();
    if (Wave* wave = choose()) visit(*wave);
  }
  for (Wave& wave : machine->waves) drain(wave);
  return true;
}

}  // namespace

u64 run(const Settings& settings, const Launch* launches, unsigned count) {
  Machine here{settings, settings.seed * 0x9E3779B97F4A7C15ull | 1};
  machine = &here;
  for (unsigned i = 0; i < count; ++i) start(launches[i]);
  return run_to_the_end() ? here.now : 0;
}

u64 load(const u64* word) {
  Lane& lane = *machine->running;
  const auto& landed = machine->landed;
  if (std::find(lane.loaded.begin(), lane.loaded.end(), word) != lane.loaded.end()) {
    // It polls: it has waited for what the loads before have brought, and looked at it.
    has_waited(lane, lane.last_load);
    leave();
  }
  lane.loaded.push_back(word);
  lane.last_load = landed.size();
  size_t moment = landed.size();
  if (machine->settings.model != STRONG && below(2)) moment -= below(moment - lane.since + 1);
  u64 value = *word;
  for (size_t i = landed.size(); i > moment; --i)
    if (landed[i - 1].word == word) value = landed[i - 1].before;
  return value;
}

void store(u64* word, u64 value, bool releases) {
  Lane& lane = *machine->running;
  Wave& wave = *lane.wave;
  if (releases && machine->settings.model == NVIDIA) release(lane);
  Store store{word, value, machine->now + some_time(), lane.thread, false};
  if (machine->settings.model == STRONG) return land(store);
  for (const Store& earlier : wave.stores)
    if (earlier.word == word) store.due = std::max(store.due, earlier.due);
  wave.stores.push_back(store);
  machine->due.push({store.due, wave.number});
}

}  // namespace weak

using namespace weak;

void __syncthreads() {
  Block& block = *machine->running->wave->block;
  stop(*machine->running, Lane::WAITING);
  ++block.barrier.present;
  end_barrier(block);
  leave();
}

bool __any(bool predicate) {
  Wave& wave = *machine->running->wave;
  stop(*machine->running, Lane::WAITING);
  ++wave.vote.present;
  wave.vote.any |= predicate;
  end_vote(wave);
  leave();
  return wave.vote.result;
}

void __threadfence_system() {
  if (machine->settings.model == NVIDIA)
    release(*machine->running);
  else
    drain(*machine->running->wave);
}

// Performed at once, where the memory is.
u64 atomicAdd(u64* word, u64 value) { return std::exchange(*word, *word + value); }
u64 atomicMin(u64* word, u64 value) { return std::exchange(*word, std::min(*word, value)); }
u64 atomicMax(u64* word, u64 value) { return std::exchange(*word, std::max(*word, value)); }
u64 atomicOr(u64* word, u64 value) { return std::exchange(*word, *word | value); }

extern "C" {
u64 transferbench_emulator_real_ticks() { return machine->now; }
void transferbench_emulator_stamp(u64* where, int) { *where = machine->now; }
void transferbench_emulator_lap(u64* where) {
  if (where) *where = machine->now;
}
void transferbench_emulator_pause() { leave(); }
void transferbench_emulator_drain(int writes_back) {
  if (writes_back || machine->settings.model != NVIDIA) __threadfence_system();
}
}
