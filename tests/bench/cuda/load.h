// tests/bench/cuda/load.h: dsa_bench_cuda load: how fast weights come from the page cache to the device.
#pragma once

namespace dsa::bench {

// The arguments behind the name of the command; returns the exit status of the program.
int cuda_load_bench(int argc, char** argv);

}  // namespace dsa::bench
