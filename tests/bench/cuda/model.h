// tests/bench/cuda/model.h: dsa_bench_cuda model: the bench of models on a GPU.
#pragma once

namespace dsa::bench {

// The arguments behind the name of the command; returns the exit status of the program.
int cuda_model_bench(int argc, char** argv);

}  // namespace dsa::bench
