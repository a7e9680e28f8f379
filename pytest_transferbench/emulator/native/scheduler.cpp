// Blocks, fibres and the OS threads that run them.
//
// A stream's own thread always serves the grid it launched, so a grid makes progress whatever else is going on; helper
// threads, one less than there are processors, take blocks of any grid. A block stays on the OS thread it began on.
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <set>
#include <thread>

#include "block.hpp"
#include "runtime.hpp"
#include "stream.hpp"

extern "C" void* __tls_get_addr(size_t* module_and_offset);

namespace emulator {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

__thread ThreadState thread_state = {{nothing_cached, nothing_cached}, nullptr, nullptr, nullptr};

namespace {

unsigned processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// How a worker goes on whose blocks poll.
//
// Now and then every poller runs, whether its word has changed or not: it may wait for something else as well, a clock
// or another word. There can be tens of thousands, and for most of them a look at their word is enough, so that takes
// an eighth of the time at most, or half while somebody wants to know whether they are still.
//
// Polling that sees nothing new must not keep a processor busy: first let others run, then sleep. Sleeps grow with what
// a look at all words costs, so that the threads waited for keep the processor, be there only one.
class Pace {
 public:
  // A pass over all blocks begins; returns whether every poller runs, as it soon does when that is `asked` for.
  bool begin(bool asked) {
    begun_ = Clock::now();
    return everyone_ = begun_ >= (asked ? everyone_due_if_asked_ : everyone_due_);
  }

  void end(bool something_happened) {
    if (something_happened && !everyone_) {
      idle_ = {};
      return;
    }
    const Clock::duration took = Clock::now() - begun_;
    if (everyone_) {
      everyone_due_ = begun_ + std::max<Clock::duration>(8 * took, 20us);
      everyone_due_if_asked_ = begun_ + 2 * took;
    }
    if (something_happened) idle_ = {};
    else rest(took);
  }

 private:
  void rest(Clock::duration took) {
    idle_ += took;
    if (idle_ < 20us) {
      sched_yield();
      return;
    }
    if (!precise_) {
      prctl(PR_SET_TIMERSLACK, 1000);  // the default slack alone is 50 us
      precise_ = true;
    }
    const auto sleep = std::max(std::min<Clock::duration>(idle_ / 8, 50us), std::min<Clock::duration>(4 * took, 500us));
    std::this_thread::sleep_for(sleep);
    idle_ += sleep;
  }

  Clock::time_point begun_, everyone_due_, everyone_due_if_asked_;
  Clock::duration idle_{};
  bool everyone_ = false, precise_ = false;
};

// The grids that helpers may take blocks from.
class Helpers {
 public:
  void offer(const std::shared_ptr<Grid>& grid) {
    std::lock_guard lock(mutex_);
    grids_.push_back(grid);
    if (!started_) {
      started_ = true;
      for (unsigned i = 1; i < processors(); ++i) std::thread([this] { run(); }).detach();
    }
    changed_.notify_all();
  }

  void withdraw(const std::shared_ptr<Grid>& grid) {
    std::lock_guard lock(mutex_);
    grids_.remove(grid);
  }

  // A block of any offered grid, in turn, so that a long grid does not keep a new one waiting.
  std::unique_ptr<Block> take() {
    std::lock_guard lock(mutex_);
    for (size_t tries = grids_.size(); tries > 0; --tries) {
      grids_.splice(grids_.end(), grids_, grids_.begin());
      if (auto block = grids_.back()->take()) return block;
    }
    return nullptr;
  }

 private:
  void run() {
    Worker worker;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return std::any_of(grids_.begin(), grids_.end(), [](const auto& grid) { return grid->has_block(); });
        });
      }
      worker.serve(nullptr);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::shared_ptr<Grid>> grids_;
  bool started_ = false;
};

Helpers& helpers() {
  static Helpers* instance = new Helpers;
  return *instance;
}

// How often something has happened that may let others go on, and how many want to know whether nothing can.
std::atomic<uint64_t> activity{0};
std::atomic<int> asking{0};

unsigned resident_blocks(const Launch& launch) {
  constexpr unsigned threads_of_a_unit = 2048;
  const auto block = static_cast<unsigned>(launch.block.count());
  return static_cast<unsigned>(model().compute_units) * std::max(1u, threads_of_a_unit / block);
}

// The loop of every fibre: run threads that have not begun until one of them waits or none is left.
void fibre_main() {
  for (;;) {
    Fibre& fibre = *thread_state.fibre;
    Block& block = *thread_state.block;
    fibre.block = &block;
    Grid& grid = *block.grid;
    const KernelEntry& kernel = *grid.launch.kernel;
    while (block.started < block.threads && grid.error.load(std::memory_order_relaxed) == hipSuccess) {
      block.begin_thread(fibre);
      kernel.invoke(kernel.function, grid.arguments.data());
      block.thread_ended(fibre);
    }
    fibre.block = nullptr;
    thread_state.worker->park(&fibre);
    thread_state.worker->leave();
  }
}

}  // namespace

// ---- grids ----

Grid::Grid(const Launch& launch_, uint64_t start_ticks_)
    : launch(launch_),
      start_ticks(start_ticks_),
      blocks(launch_.grid.count()),
      resident_limit(resident_blocks(launch_)) {
  for (const auto& argument : launch.arguments) arguments.push_back(const_cast<char*>(argument.data()));
}

bool Grid::has_block() {
  std::lock_guard lock(mutex);
  return next < blocks && resident < resident_limit && error == hipSuccess;
}

std::unique_ptr<Block> Grid::take() {
  std::lock_guard lock(mutex);
  if (next >= blocks || resident >= resident_limit || error != hipSuccess) return nullptr;
  ++resident;
  return std::make_unique<Block>(shared_from_this(), next++);
}

GridOutcome run_grid(const Launch& launch, uint64_t start_ticks) {
  static thread_local Worker worker;
  auto grid = std::make_shared<Grid>(launch, start_ticks);
  note_grid(grid);
  const bool helped = grid->blocks > 1;
  if (helped) helpers().offer(grid);
  worker.serve(grid.get());
  if (helped) helpers().withdraw(grid);
  std::unique_lock lock(grid->mutex);
  grid->done.wait(lock, [&] { return grid->complete(); });
  grid->outcome.error = grid->error;
  return std::move(grid->outcome);
}

Asking::Asking() {
  ++asking;
  ++activity;
}
Asking::~Asking() { --asking; }

bool is_stuck(Grid& grid, bool just_asked) {
  if (grid.let_be) return true;
  std::lock_guard lock(grid.mutex);
  const bool more = grid.next < grid.blocks && grid.resident < grid.resident_limit && grid.error == hipSuccess;
  if (more || !grid.resident) return false;
  unsigned blocks = 0;
  for (const Grid::Stillness& still : grid.stillness) {
    if (still.activity != activity || !(still.watchable || just_asked)) continue;
    for (const Poller& poller : still.pollers) {
      if (poller.has_news()) return false;
    }
    blocks += still.blocks;
  }
  return blocks == grid.resident;
}

void let_be(Grid& grid) {
  if (grid.polls) grid.let_be = true;
}

uint8_t* Grid::marks_of(const Allocation& allocation) {
  std::lock_guard lock(mutex);
  auto& footprints = outcome.traffic.footprints;
  for (const auto& footprint : footprints) {
    if (footprint->base == allocation.base) return footprint->marks();
  }
  const auto after = std::find_if(footprints.begin(), footprints.end(),
                                  [&](const auto& other) { return other->number > allocation.number; });
  return (*footprints.insert(after, std::make_unique<Footprint>(allocation)))->marks();
}

// ---- blocks ----

Block::Block(std::shared_ptr<Grid> grid_, uint64_t number)
    : grid(std::move(grid_)),
      grid_dim(grid->launch.grid),
      block_dim(grid->launch.block),
      threads(static_cast<unsigned>(block_dim.count())),
      width(static_cast<unsigned>(model().wavefront)),
      wave_shift(static_cast<unsigned>(__builtin_ctz(width))) {
  xcc = static_cast<unsigned>(number % static_cast<uint64_t>(model().xccs));
  for (auto& by_owner : moved) by_owner.resize(static_cast<size_t>(model().devices + 1));
  index = {static_cast<unsigned>(number % grid_dim.x), static_cast<unsigned>(number / grid_dim.x % grid_dim.y),
           static_cast<unsigned>(number / grid_dim.x / grid_dim.y)};
}

Block::Awake Block::wake(bool everyone) {
  everyone |= restless_;
  bool noticed = false;
  size_t waiting = 0;
  for (const Poller& poller : pollers) {
    const bool has_news = poller.has_news();
    noticed |= has_news;
    if (has_news || everyone || !poller.words) ready.push(poller.fibre);
    else pollers[waiting++] = poller;
  }
  pollers.resize(waiting);
  if (noticed) return Awake::Noticed;
  const bool somebody = started < threads || !ready.empty() || grid->error != hipSuccess;
  return somebody ? Awake::Somebody : Awake::Nobody;
}

Fibre* Block::next(Worker& worker) {
  if (grid->error.load(std::memory_order_relaxed) != hipSuccess) return nullptr;
  if (!together.empty()) return together.pop();
  if (started < threads) return worker.idle_fibre();
  return ready.empty() ? nullptr : ready.pop();
}

Block::Slice Block::run(Worker& worker) {
  const unsigned started_before = started, finished_before = finished;
  const uint64_t progress_before = worker.progress();
  if (Fibre* fibre = next(worker)) worker.run(fibre);
  if (finished == threads || grid->error != hipSuccess) return Slice::Ended;
  // What is left polls: barriers and votes open by themselves once every other thread waits or has ended.
  restless_ = started != started_before || finished != finished_before || worker.progress() != progress_before;
  return restless_ ? Slice::Progressed : Slice::Waiting;
}

void Block::add_moved(Ways& ways) {
  for (const Direction direction : {READ, WRITE}) {
    auto& totals = direction == READ ? ways.read : ways.written;
    for (size_t owner = 0; owner < totals.size(); ++owner) {
      uint64_t& bytes = moved[direction][owner];
      if (!bytes) continue;
      totals[owner].bytes += bytes;
      ++totals[owner].blocks;
      totals[owner].xccs |= uint64_t{1} << xcc;
      bytes = 0;
    }
  }
}

void Block::begin_thread(Fibre& fibre) {
  fibre.thread = started++;
  fibre.index = next_index;
  if (++next_index.x < block_dim.x) return;
  next_index.x = 0;
  if (++next_index.y < block_dim.y) return;
  next_index.y = 0;
  ++next_index.z;
}

void Block::thread_ended(Fibre& fibre) {
  ++finished;
  if (!fibre.polled) clock_reads = std::max(clock_reads, fibre.clock_reads);
  if (fibre.polled) {
    for (Fibre::Seen& seen : fibre.seen) seen = {};
    fibre.polled = false;
    fibre.polls = 0;
  }
  fibre.clock_reads = 0;
  fibre.lap = fibre.stored_at_drain = Fibre::NEVER;
  if (!waves.empty()) {
    Wave& wave = wave_of(fibre.thread);
    --wave.alive;
    finish_vote_if_full(wave);
  }
  release_barrier_if_full();
}

void Block::yield() {
  pollers.emplace_back().fibre = thread_state.fibre;
  thread_state.worker->leave();
}

void Block::wait_for_news() {
  const Fibre& self = *thread_state.fibre;
  Poller& poller = pollers.emplace_back();
  poller.fibre = thread_state.fibre;
  for (const Fibre::Seen& seen : self.seen) {
    if (!seen.address || seen.news != self.news) continue;
    if (!seen.nbytes || poller.words == Poller::MOST_WORDS) {
      poller.words = 0;
      break;
    }
    poller.watched[poller.words++] = {reinterpret_cast<const void*>(seen.address), seen.value, seen.nbytes};
  }
  thread_state.worker->leave();
}

void Block::drain(bool writes_back) {
  Fibre& self = *thread_state.fibre;
  if (self.lap != lap) {
    self.lap = lap;
    self.drains = self.write_backs = 0;
  }
  const uint64_t stored = thread_state.worker->stored_by(self);
  if (stored != self.stored_at_drain) drains = std::max(drains, ++self.drains);
  self.stored_at_drain = stored;
  if (writes_back) write_backs = std::max(write_backs, ++self.write_backs);
}

void Block::end_lap(uint64_t* stamp) {
  thread_state.worker->settle(*this);
  std::lock_guard lock(grid->mutex);
  auto& laps = grid->outcome.laps;
  if (laps.size() == lap) laps.emplace_back();
  Lap& ended = laps[lap++];
  add_moved(ended.ways);
  ended.drains = std::max(ended.drains, drains);
  ended.write_backs = std::max(ended.write_backs, write_backs);
  if (stamp) ended.stamps.push_back(stamp);
  drains = write_backs = 0;
}

void Block::barrier(bool predicate) {
  Fibre* self = thread_state.fibre;
  ++at_barrier;
  barrier_true += predicate;
  barrier_waiters.push_back(self);
  if (!waves.empty()) {
    Wave& wave = wave_of(self->thread);
    ++wave.at_barrier;
    finish_vote_if_full(wave);
  }
  release_barrier_if_full();
  thread_state.worker->leave();
}

void Block::release_barrier_if_full() {
  if (!at_barrier || at_barrier + finished < threads) return;
  barrier_result = barrier_true;
  at_barrier = barrier_true = 0;
  for (Wave& wave : waves) wave.at_barrier = 0;
  for (Fibre* waiter : barrier_waiters) ready.push(waiter);
  barrier_waiters.clear();
}

void Block::vote(uint64_t value, int site) {
  Fibre* self = thread_state.fibre;
  if (waves.empty()) {  // the first vote of the block: count who is left, lane by lane
    waves.resize((threads + width - 1) / width);
    for (unsigned wave = 0; wave < waves.size(); ++wave) waves[wave].alive = std::min(width, threads - wave * width);
    // Threads that ended before the first vote ran in order on one fibre, and so did those at a barrier.
    for (unsigned thread = 0; thread < started; ++thread) wave_of(thread).alive--;
    auto count = [&](const Fibre* fibre) { wave_of(fibre->thread).alive++; };
    count(self);
    for (const Fibre* fibre : ready) count(fibre);
    for (const Poller& poller : pollers) count(poller.fibre);
    for (const Fibre* fibre : barrier_waiters) {
      count(fibre);
      wave_of(fibre->thread).at_barrier++;
    }
  }
  Wave& wave = wave_of(self->thread);
  wave.votes[lane_of(self->thread)] = {self, site, value};
  ++wave.voting;
  finish_vote_if_full(wave);
  thread_state.worker->leave();
}

void Block::finish_vote_if_full(Wave& wave) {
  if (!wave.voting || wave.voting + wave.at_barrier < wave.alive) return;
  // Lanes of a wavefront that diverged vote at different lines: those further up in the source go first, as the
  // hardware lets the longer way meet the shorter one.
  int site = 0x7fffffff;
  for (const Wave::Vote& vote : wave.votes) {
    if (vote.voter) site = std::min(site, vote.site);
  }
  // They go on at once, while their stacks are in the processor's nearest cache; but others must have their turn, too.
  Queue& queue = ++wave.votes_in_a_row % Wave::VOTES_IN_A_ROW ? together : ready;
  wave.present = wave.ballot = 0;
  for (unsigned lane = 0; lane < width; ++lane) {
    Wave::Vote& vote = wave.votes[lane];
    if (!vote.voter || vote.site != site) continue;
    wave.present |= uint64_t{1} << lane;
    wave.ballot |= uint64_t{vote.value != 0} << lane;
    wave.snapshot[lane] = vote.value;
    queue.push(vote.voter);
    vote.voter = nullptr;
    --wave.voting;
  }
}

// ---- workers ----

Worker::~Worker() {
  for (const auto& fibre : fibres_) stacks_.give(fibre->stack);
}

Fibre* Worker::idle_fibre() {
  if (idle_.empty()) {
    auto fibre = std::make_unique<Fibre>();
    fibre->stack = stacks_.take();
    // Stacks lie a power of two apart; beginning each a little higher keeps their tops out of one another's cache sets.
    fibre->stack_size = StackPool::STACK - fibres_.size() % 64 * 256;
    prepare(fibre->context, fibre->stack, fibre->stack_size, fibre_main);
    idle_.push_back(fibre.get());
    fibres_.push_back(std::move(fibre));
  }
  Fibre* fibre = idle_.back();
  idle_.pop_back();
  return fibre;
}

void Worker::run(Fibre* fibre) {
  thread_state.fibre = fibre;
  stored_at_switch_ = stored();
  switch_context(scheduler_, fibre->context);
  thread_state.fibre = nullptr;
}

void Worker::leave() {
  Fibre* const self = thread_state.fibre;
  Fibre* const next = thread_state.block->next(*this);
  if (next == self) return;
  self->stored = stored_by(*self);
  stored_at_switch_ = stored();
  thread_state.fibre = next;
  switch_context(self->context, next ? next->context : scheduler_);
}

void Worker::abandon() {
  leave();
  __builtin_unreachable();
}

void Worker::enter(Block& block) {
  if (ranges_grid_ != block.grid) {
    forget_ranges();
    ranges_grid_ = block.grid;
  }
  if (block.grid->launch.module->tls_size) adopt_shared_memory(block);
  thread_state.block = &block;
  thread_state.worker = this;
}

void Worker::adopt_shared_memory(Block& block) {
  const Module& module = *block.grid->launch.module;
  size_t place[2] = {module.tls_id, 0};
  char* shared = static_cast<char*>(__tls_get_addr(place));
  shared_ = reinterpret_cast<uintptr_t>(shared);
  auto owner = std::find_if(shared_owners_.begin(), shared_owners_.end(),
                            [&](const SharedOwner& entry) { return entry.tls_id == module.tls_id; });
  if (owner == shared_owners_.end()) owner = shared_owners_.insert(owner, {module.tls_id, nullptr});
  if (owner->block == &block) return;
  if (owner->block) owner->block->saved_shared.assign(shared, shared + module.tls_size);
  if (!block.saved_shared.empty()) std::memcpy(shared, block.saved_shared.data(), module.tls_size);
  owner->block = &block;
}

void Worker::end(std::unique_ptr<Block> block) {
  Grid& grid = *block->grid;
  for (SharedOwner& owner : shared_owners_) {
    if (owner.block == block.get()) owner.block = nullptr;
  }
  if (block->finished != block->threads) {  // given up in the middle: its stacks are good for new threads
    for (const auto& fibre : fibres_) {
      if (fibre->block != block.get()) continue;
      Fibre fresh;
      fresh.stack = fibre->stack;
      fresh.stack_size = fibre->stack_size;
      *fibre = fresh;
      prepare(fibre->context, fibre->stack, fibre->stack_size, fibre_main);
      idle_.push_back(fibre.get());
    }
  }
  std::lock_guard lock(grid.mutex);
  GridOutcome& outcome = grid.outcome;
  block->add_moved(outcome.traffic);
  outcome.stamps.insert(outcome.stamps.end(), block->stamps.begin(), block->stamps.end());
  outcome.clock_reads = std::max(outcome.clock_reads, block->clock_reads);
  outcome.polled_host |= block->polled_host;
  outcome.host_seen = std::max(outcome.host_seen, block->host_seen);
  --grid.resident;
  if (grid.complete()) grid.done.notify_all();
}

void Worker::serve(Grid* own) {
  constexpr unsigned most_passes_in_vain = 16;
  unsigned passes_in_vain = 0;  // in which no block ended
  Pace pace;
  auto take = [&] { return own ? own->take() : helpers().take(); };
  for (;;) {
    bool progressed = false, noticed = false;
    const bool asked = asking > 0;
    const uint64_t happened = activity;
    const bool everyone = pace.begin(asked);
    for (auto& block : resident_) {
      const Block::Awake awake = block->wake(everyone);
      if (awake == Block::Awake::Nobody) continue;
      noticed |= awake == Block::Awake::Noticed;
      enter(*block);
      const Block::Slice slice = block->run(*this);
      settle(*block);
      thread_state.block = nullptr;
      if (slice == Block::Slice::Ended) {
        end(std::move(block));
        passes_in_vain = 0;
      }
      progressed |= slice != Block::Slice::Waiting;
    }
    resident_.erase(std::remove(resident_.begin(), resident_.end(), nullptr), resident_.end());
    // Blocks that only poll may wait for one that has not begun, so the number at work doubles until something moves;
    // and so may blocks that do something else besides, for ever.
    if (!progressed || ++passes_in_vain == most_passes_in_vain) {
      passes_in_vain = 0;
      for (size_t more = std::max<size_t>(1, resident_.size()); more > 0; --more) {
        auto block = take();
        if (!block) break;
        resident_.push_back(std::move(block));
        progressed = true;
      }
    }
    if (progressed || noticed) ++activity;
    if (resident_.empty() && !progressed) break;
    if (asked && everyone && !progressed && !noticed) say_still(happened);
    pace.end(progressed || noticed);
  }
  forget_ranges();
  if (fibres_.size() > 1024) {  // a grid of pollers is over: give the memory of its stacks back
    for (const auto& fibre : fibres_) stacks_.give(fibre->stack);
    fibres_.clear();
    idle_.clear();
    stacks_.trim();
  }
}

void Worker::say_still(uint64_t happened) const {
  std::set<Grid*> told;
  for (const auto& block : resident_) {
    Grid& grid = *block->grid;
    std::lock_guard lock(grid.mutex);
    auto& all = grid.stillness;
    auto mine = std::find_if(all.begin(), all.end(), [&](const Grid::Stillness& one) { return one.worker == this; });
    if (mine == all.end()) mine = all.insert(all.end(), {this, happened, 0, true, {}});
    if (told.insert(&grid).second) *mine = {this, happened, 0, true, {}};
    ++mine->blocks;
    for (const Poller& poller : block->pollers) {
      mine->watchable &= poller.words > 0;
      if (poller.words) mine->pollers.push_back(poller);
    }
  }
  timeline().changed.notify_all();
}

void Worker::settle(Block& block) {
  for (const Direction direction : {READ, WRITE}) {
    AccessRange& hot = thread_state.hot[direction];
    if (hot_slot_[direction] >= 0) known_[direction][hot_slot_[direction]].bytes += hot.bytes;
    if (direction == WRITE) stored_ += hot.bytes;
    hot.bytes = 0;
    for (unsigned i = 0; i < known_count_[direction]; ++i) {
      AccessRange& range = known_[direction][i];
      block.moved[direction][static_cast<size_t>(range.owner + 1)] += range.bytes;
      range.bytes = 0;
    }
  }
}

void Worker::forget_ranges() {
  if (!ranges_grid_) return;
  for (const Direction direction : {READ, WRITE}) {
    thread_state.hot[direction] = nothing_cached;
    hot_slot_[direction] = -1;
    known_count_[direction] = known_next_[direction] = 0;
  }
  ranges_grid_.reset();
}

}  // namespace emulator
