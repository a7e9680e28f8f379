// The start gate, and the measurement of the stamp clocks themselves.

// Holds its stream until the host has written `epoch` to `flag`, so that everything queued behind it starts without
// waiting for the host. Epochs only grow: an old release never opens a new gate. The deadline is in the kernel
// because a stream that spins for ever cannot be ended from outside; `status` then receives the epoch.
TB_KERNEL(1) tb_gate(const tb_u64* flag, tb_u64 epoch, tb_u64 deadline_ticks, tb_u64* status) {
  const tb_u64 start = tb_deadline_clock();
  while (tb_load_system(flag) < epoch) {
    if (tb_deadline_clock() - start > deadline_ticks) {
      *status = epoch;
      __threadfence_system();
      return;
    }
    tb_pause();
  }
}

// Does nothing between its stamps: what an event pair sees around it beyond them is the price of a launch.
TB_KERNEL(1) tb_nothing(tb_u64* stamps) {
  tb_start(stamps);
  tb_stop(stamps);
}

// One block a die: all meet at a counter, then stamp. The spread of the stamps bounds how far the dies' clocks differ.
TB_KERNEL(1) tb_skew(tb_u64* arrived, tb_u64* stamps, tb_u64 deadline_ticks) {
  atomicAdd(arrived, (tb_u64)1);
  const tb_u64 start = tb_deadline_clock();
  while (tb_load_system(arrived) < gridDim.x && tb_deadline_clock() - start < deadline_ticks) tb_pause();
  tb_stamp(stamps + 2 * blockIdx.x, 0);
  stamps[2 * blockIdx.x + 1] = tb_xcc();
}
