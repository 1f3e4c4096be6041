#include "model/vision.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "model/room.h"
#include "ops/ops.h"
#include "ops/step.h"

namespace dsa {
namespace {

constexpr int64_t kSlice = 512;  // patches that one advance() takes through a part of a block
constexpr int64_t kFewest = 96;  // and those of a picture so large that attention would take too long
constexpr int64_t kScores = int64_t(4) << 20;  // of a head, that one advance() may compute
constexpr double kTheta = 10000;               // of the rotary embedding

// What the host makes for the kernels of a pass.
struct VisionInputs {
  Tensor pixels;                // [slice, 3 * patch * patch]
  VisionAttentionRun* runs;     // [pictures]
  size_t begin_runs, end_runs;  // where they lie
  Tensor rows, columns;         // [patches]  i32: where a patch lies in its picture
  Tensor corners;               // [patches]  i32: the patches of each token, one after the other
  Tensor turns;                 // [longest side, dim / 2]  of the rotary embedding
  Grid* grids;                  // [pictures]

  VisionInputs(const ModelConfig& c, std::span<const PictureShape> shapes, Room& room) {
    const VisionConfig& v = c.vision;
    int64_t n = 0, side = 1;
    for (const PictureShape& shape : shapes) {
      n += shape.patches();
      side = std::max<int64_t>({side, shape.rows, shape.columns});
    }
    pixels = room.floats({std::min(n, kSlice), v.patch_values()});
    begin_runs = room.used();
    runs = room.array<VisionAttentionRun>(shapes.size());
    end_runs = room.used();
    rows = room.integers({n});
    columns = room.integers({n});
    corners = room.integers({n});
    turns = room.floats({side, v.head_dim / 2});
    grids = room.array<Grid>(shapes.size());
  }
};

// Every intermediate tensor of a pass. A slice is at most kSlice patches.
struct VisionActivations {
  Tensor x;                     // [patches, hidden]  the residual stream
  Tensor qkv;                   // [3 * heads, patches, dim]  a head's keys lie together
  Tensor h;                     // [slice, hidden]  norm of x, output of a part
  Tensor o;                     // [slice, heads, dim]
  Tensor mlp, mlp_up;           // [slice, mlp_dim]
  Tensor merged, proj;          // [slice / merge^2, merged]
  Tensor merge_gate, merge_up;  // [slice / merge^2, projector_dim]

  VisionActivations(const ModelConfig& c, std::span<const PictureShape> shapes, Room& room) {
    const VisionConfig& v = c.vision;
    int64_t n = 0, tokens = 0;
    for (const PictureShape& shape : shapes) {
      n += shape.patches();
      tokens += shape.tokens;
    }
    const int64_t slice = std::min(n, kSlice), slice_tokens = std::min(tokens, kSlice / (v.merge * v.merge));
    x = room.floats({n, v.hidden});
    qkv = room.floats({3 * int64_t(v.heads), n, v.head_dim});
    h = room.floats({slice, v.hidden});
    o = room.floats({slice, v.heads, v.head_dim});
    mlp = room.floats({slice, v.mlp_dim});
    if (v.gated) mlp_up = room.floats({slice, v.mlp_dim});
    merged = room.floats({slice_tokens, v.merged()});
    proj = room.floats({slice_tokens, v.projector_dim > 0 ? c.hidden : v.merged()});
    if (v.projector_dim > 0) {
      merge_gate = room.floats({slice_tokens, v.projector_dim});
      merge_up = room.floats({slice_tokens, v.projector_dim});
    }
  }
};

template <class Tensors>
uint64_t bytes_of(const ModelConfig& config, std::span<const PictureShape> shapes) {
  Room room;
  const Tensors counted(config, shapes, room);
  return room.used();
}

uint64_t feature_bytes(const ModelConfig& config, std::span<const PictureShape> shapes) {
  uint64_t tokens = 0;
  for (const PictureShape& shape : shapes) tokens += uint64_t(shape.tokens);
  return tokens * uint64_t(config.hidden) * sizeof(float);
}

// The memory of one pass.
struct VisionMemory {
  Memory activations;
  Mirror inputs, features;
};

Result<VisionMemory> allocate(const ModelConfig& config, std::span<const PictureShape> shapes,
                              Storage& storage) {
  VisionMemory m;
  DSA_ASSIGN(m.activations,
             storage.allocate(bytes_of<VisionActivations>(config, shapes), "the vision tower"));
  DSA_ASSIGN(m.inputs,
             storage.allocate_mirror(bytes_of<VisionInputs>(config, shapes), "the patches of pictures"));
  DSA_ASSIGN(m.features, storage.allocate_mirror(feature_bytes(config, shapes), "the features of pictures"));
  return m;
}

}  // namespace

class TowerPass final : public VisionPass {
 public:
  TowerPass(const VisionTower& tower, std::vector<Canvas> canvases, std::span<const PictureShape> shapes,
            VisionMemory memory)
      : tower_(tower),
        v_(tower.config_.vision),
        w_(tower.weights_),
        step_(tower.backend_),
        canvases_(std::move(canvases)),
        memory_(std::move(memory)),
        room_(memory_.activations.get()),
        made_room_(memory_.inputs.host.get()),
        input_room_(memory_.inputs.device.get()),
        a_(tower.config_, shapes, room_),
        made_(tower.config_, shapes, made_room_),
        in_(tower.config_, shapes, input_room_) {
    int64_t tokens = 0;
    for (const PictureShape& shape : shapes) {
      grids_.push_back({patches_, shape.rows, shape.columns});
      patches_ += shape.patches();
      tokens += shape.tokens;
      attend_slice_ = std::clamp(kScores / shape.patches(), kFewest, attend_slice_);
    }
    features_ = Tensor(memory_.features.device.get(), DType::f32, {tokens, tower.config_.hidden});
    fill_places();
    fill_rope_2d_turns(made_.turns.f32(), int(made_.turns.dim[0]), v_.head_dim, kTheta);
    std::copy(grids_.begin(), grids_.end(), made_.grids);
    step_.storage().upload(memory_.inputs, made_.end_runs, made_room_.used() - made_.end_runs);
  }

  Result<bool> advance() override {
    if (stage_ == Stage::done) return true;
    const auto thread = tower_.backend_.enter_thread();
    const int64_t slice = stage_ == Stage::merge    ? a_.merged.dim[0]
                          : stage_ == Stage::attend ? attend_slice_
                                                    : kSlice;
    const int64_t rows = stage_ == Stage::merge ? features_.dim[0] : patches_;
    const int64_t n = std::min(slice, rows - first_);
    switch (stage_) {
      case Stage::embed: embed(first_, n); break;
      case Stage::project: project(w_.blocks[layer_], first_, n); break;
      case Stage::attend: attend(w_.blocks[layer_], first_, n); break;
      case Stage::merge: merge(first_, n); break;
      case Stage::done: break;
    }
    first_ += n;
    if (first_ == rows) next_stage();
    DSA_TRY(step_.storage().finish());
    return stage_ == Stage::done;
  }

  Tensor features() const override {
    return Tensor(memory_.features.host.get(), DType::f32, {features_.dim[0], features_.dim[1]});
  }

 private:
  // Keys and values of every patch come before the attention of the first.
  enum class Stage { embed, project, attend, merge, done };

  void next_stage() {
    first_ = 0;
    switch (stage_) {
      case Stage::embed:
        if (!w_.positions.is_null())
          ops::grid_embedding(step_, w_.positions, in_.grids, int(grids_.size()), a_.x);  // [patches, hidden]
        canvases_.clear();
        observe("embedded", a_.x);
        stage_ = Stage::project;
        break;
      case Stage::project: stage_ = Stage::attend; break;
      case Stage::attend:
        stage_ = ++layer_ < w_.blocks.size() ? Stage::project : Stage::merge;
        if (stage_ == Stage::project) break;
        ops::rms_norm(step_, a_.x, w_.final_norm, v_.norm_eps, a_.x);  // [patches, hidden]
        observe("tower", a_.x);
        break;
      default:
        step_.storage().download(memory_.features, 0, size_t(features_.count()) * sizeof(float));
        memory_.activations.reset();
        stage_ = Stage::done;
    }
  }

  void embed(int64_t first, int64_t n) {
    for_each_part(first, n, [&](size_t i, int64_t begin, int64_t count) {
      canvas_patches(v_, canvases_[i], begin - grids_[i].first, count,
                     made_.pixels.slice(begin - first, count).f32());
    });
    step_.storage().upload(memory_.inputs, 0, size_t(made_.pixels.first(n).count()) * sizeof(float));
    linear(in_.pixels.first(n), w_.patch, w_.patch_bias, a_.x.slice(first, n));  // [slice, hidden]
  }

  void project(const VisionBlockWeights& w, int64_t first, int64_t n) {
    const Tensor h = a_.h.first(n);
    ops::rms_norm(step_, a_.x.slice(first, n), w.norm0, v_.norm_eps, h);  // [slice, hidden]
    const Tensor qkv = heads_of_qkv(0, 3).slice(first, n);
    ops::head_linear(step_, for_each_head(h), w.qkv, false, qkv);  // [slice, 3 * heads, dim]
    if (!w.qkv_bias.is_null()) ops::add_bias(step_, w.qkv_bias, qkv);
    if (!w.q_norm.is_null()) {
      ops::head_norm(step_, w.q_norm, v_.norm_eps, heads_of_qkv(0, 1).slice(first, n));
      ops::head_norm(step_, w.k_norm, v_.norm_eps, heads_of_qkv(1, 1).slice(first, n));
    }
    ops::rope_2d(step_, v_.rope, heads_of_qkv(0, 2).slice(first, n), in_.rows.slice(first, n),
                 in_.columns.slice(first, n), in_.turns);
  }

  void attend(const VisionBlockWeights& w, int64_t first, int64_t n) {
    const Tensor x = a_.x.slice(first, n), h = a_.h.first(n), o = a_.o.first(n), mlp = a_.mlp.first(n);
    int runs = 0;
    for_each_part(first, n, [&](size_t i, int64_t begin, int64_t count) {
      made_.runs[runs++] = {begin - first, grids_[i].first, int(count), grids_[i].rows * grids_[i].columns};
    });
    step_.storage().upload(memory_.inputs, made_.begin_runs, made_.end_runs - made_.begin_runs);
    ops::vision_attention(step_, heads_of_qkv(0, 1).slice(first, n), heads_of_qkv(1, 1), heads_of_qkv(2, 1),
                          in_.runs, runs, 1 / std::sqrt(float(v_.head_dim)), o);  // [slice, heads, dim]
    linear(o.reshape({n, int64_t(v_.heads) * v_.head_dim}), w.o, w.o_bias, h);    // [slice, hidden]
    ops::add(step_, x, h, x);

    ops::rms_norm(step_, x, w.norm1, v_.norm_eps, h);  // [slice, hidden]
    linear(h, w.fc0, w.fc0_bias, mlp);                 // [slice, mlp_dim]
    if (v_.gated) {
      const Tensor up = a_.mlp_up.first(n);
      linear(h, w.up, w.up_bias, up);  // [slice, mlp_dim]
      ops::activation(step_, mlp, up, v_.activation, mlp);
    } else {
      ops::gelu(step_, GeluKind::tanh, mlp, mlp);
    }
    linear(mlp, w.fc1, w.fc1_bias, h);  // [slice, hidden]
    ops::add(step_, x, h, x);
  }

  // Tokens [first, first + n): their patches side by side, then the projector.
  void merge(int64_t first, int64_t n) {
    const int64_t patches = v_.merge * v_.merge;
    const Tensor merged = a_.merged.first(n), proj = a_.proj.first(n), features = features_.slice(first, n);
    ops::gather_rows(step_, a_.x, in_.corners.slice(first * patches, n * patches),
                     merged.reshape({n * patches, v_.hidden}));  // [tokens, merged]
    if (v_.projector_dim > 0) return project_gated(merged, proj, features);
    ops::linear(step_, merged, w_.proj0, proj);  // [tokens, merged]
    ops::gelu(step_, GeluKind::exact, proj, proj);
    ops::linear(step_, proj, w_.proj2, features);  // [tokens, hidden of the text]
    ops::rms_norm(step_, features, w_.post, v_.projector_eps, features);
  }

  // Patches of a token become one, [tokens, hidden of the text], which a gated block turns into its features.
  void project_gated(const Tensor& merged, const Tensor& proj, const Tensor& features) {
    const int64_t n = merged.dim[0];
    const Tensor gate = a_.merge_gate.first(n), up = a_.merge_up.first(n);
    linear(merged, w_.downsample, w_.downsample_bias, proj);  // [tokens, hidden of the text]
    observe("downsampled", proj);
    ops::linear(step_, proj, w_.merge_proj, features);  // [tokens, hidden of the text]
    ops::layer_norm(step_, features, w_.merge_norm, w_.merge_norm_bias, v_.projector_eps, features);
    ops::gelu(step_, GeluKind::exact, features, features);
    ops::linear(step_, features, w_.merge_mlp.gate, gate);  // [tokens, projector_dim]
    ops::linear(step_, features, w_.merge_mlp.up, up);      // [tokens, projector_dim]
    ops::activation(step_, gate, up, v_.activation, gate);
    ops::linear(step_, gate, w_.merge_mlp.down, features);  // [tokens, hidden of the text]
  }

  // With a bias if there is one.
  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y) {
    ops::linear(step_, x, weight, y);
    if (!bias.is_null()) ops::add_bias(step_, bias, y);
  }

  // Parts [first, first + n) of queries, keys, values: [patches, n * heads, dim].
  Tensor heads_of_qkv(int first, int n) const {
    Tensor t = a_.qkv.slice(int64_t(first) * v_.heads, int64_t(n) * v_.heads);
    std::swap(t.dim[0], t.dim[1]);
    std::swap(t.stride[0], t.stride[1]);
    return t;
  }

  // The same rows for each head of queries, keys, values: [rows, 3 * heads, hidden].
  Tensor for_each_head(const Tensor& h) const {
    Tensor t = h.reshape({h.dim[0], 1, h.dim[1]});
    t.dim[1] = 3 * int64_t(v_.heads);
    t.stride[1] = 0;
    return t;
  }

  // f(i, begin, count) for the patches of picture i that lie in [first, first + n).
  template <class F>
  void for_each_part(int64_t first, int64_t n, const F& f) const {
    for (size_t i = 0; i < grids_.size(); ++i) {
      const int64_t begin = std::max(first, grids_[i].first);
      const int64_t end = std::min(first + n, grids_[i].first + int64_t(grids_[i].rows) * grids_[i].columns);
      if (begin < end) f(i, begin, end - begin);
    }
  }

  // Rows and columns of each patch; the patches of each token, row-major inside the token as the tokens are.
  void fill_places() {
    int32_t *row = made_.rows.i32(), *column = made_.columns.i32(), *corner = made_.corners.i32();
    for (const Grid& grid : grids_) {
      for (int r = 0; r < grid.rows; ++r)
        for (int c = 0; c < grid.columns; ++c) *row++ = r, *column++ = c;
      for (int r = 0; r < grid.rows; r += v_.merge)
        for (int c = 0; c < grid.columns; c += v_.merge)
          for (int i = 0; i < v_.merge * v_.merge; ++i)
            *corner++ = int32_t(grid.first + int64_t(r + i / v_.merge) * grid.columns + c + i % v_.merge);
    }
  }

  // Shows the observer a copy.
  void observe(const char* stage, const Tensor& x) {
    if (!tower_.observer_) return;
    std::vector<float> copy(size_t(x.count()));
    if (step_.storage()
            .read(copy.data(), x.data, copy.size() * sizeof(float))
            .is_ok())  // else the slice fails
      tower_.observer_(stage, Tensor(copy.data(), DType::f32, {x.dim[0], x.dim[1]}));
  }

  const VisionTower& tower_;
  const VisionConfig& v_;
  const VisionWeights& w_;
  Step step_;
  std::vector<Canvas> canvases_;  // until the patches are embedded
  std::vector<Grid> grids_;
  VisionMemory memory_;  // the activations go once the features are ready
  Room room_, made_room_, input_room_;
  VisionActivations a_;
  VisionInputs made_, in_;  // on the host, and where kernels read them
  Tensor features_;         // [tokens, hidden of the text]
  int64_t patches_ = 0;
  int64_t attend_slice_ = kSlice;

  Stage stage_ = Stage::embed;
  size_t layer_ = 0;
  int64_t first_ = 0;  // the next row of the stage
};

Result<std::unique_ptr<VisionPass>> VisionTower::begin(std::span<const Picture* const> pictures) {
  if (pictures.empty()) return error(Code::argument, "a pass over no picture").with_fix(Fix::input);
  uint64_t bytes = 0;
  try {
    std::vector<PictureShape> shapes;
    int64_t patches = 0;
    for (const Picture* picture : pictures) {
      shapes.push_back(shape(picture->width(), picture->height()));
      patches += shapes.back().patches();
    }
    if (patches > INT32_MAX)
      return error(Code::limit, pictures.size(), " pictures of ", patches, " patches in one pass, at most ",
                   INT32_MAX)
          .with_fix(Fix::shorten);
    bytes = pass_bytes(shapes);
    std::vector<Canvas> canvases;
    for (const Picture* picture : pictures) {
      DSA_ASSIGN(Canvas canvas, picture_canvas(config_.vision, *picture));
      canvases.push_back(std::move(canvas));
    }
    auto memory = allocate(config_, shapes, backend_.storage());
    if (!memory.is_ok())
      return error(memory.status().code(), "a pass over ", pictures.size(), " pictures needs ", bytes,
                   " bytes: ", memory.status().message())
          .with_fix(Fix::free_memory)
          .with_native(memory.status().info().native)
          .with_room(bytes, memory.status().info().available);
    return std::unique_ptr<VisionPass>(
        std::make_unique<TowerPass>(*this, std::move(canvases), shapes, std::move(memory).value()));
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, "no memory for a pass over ", pictures.size(), " pictures, ", bytes,
                 " bytes")
        .with_fix(Fix::free_memory)
        .with_room(bytes, 0);
  }
}

uint64_t VisionTower::pass_bytes(std::span<const PictureShape> shapes) const {
  uint64_t bytes = bytes_of<VisionActivations>(config_, shapes) + bytes_of<VisionInputs>(config_, shapes) +
                   feature_bytes(config_, shapes);
  for (const PictureShape& shape : shapes)
    bytes += uint64_t(shape.patches()) * uint64_t(config_.vision.patch_values());
  return bytes;
}

}  // namespace dsa
