#include "model/vision_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/common/numbers.h"

namespace dsa::test {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

Row read(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr || tensor->dtype != DType::bf16) throw std::runtime_error("no bf16 tensor " + name);
  Row values(tensor->bytes / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    bf16 v;
    memcpy(&v, tensor->data + 2 * i, 2);
    values[i] = to_f32(v);
  }
  return values;
}

Row product(const Row& weight, const Row& x) {
  Row y(weight.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o)
    for (size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
  return y;
}

Row normed(const Row& x, const Row& weight, double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  Row y = x;
  for (size_t d = 0; d < x.size(); ++d) y[d] *= weight[d] / std::sqrt(squares / double(x.size()) + eps);
  return y;
}

// Value of the table at a fractional place, both axes with half-pixel centres.
double between(const Row& table, int rows, int columns, int dim, double r, double c, int d) {
  r = std::max(r, 0.0), c = std::max(c, 0.0);
  const auto at = [&](int i, int j) {
    return table[size_t((std::min(i, rows - 1) * columns + std::min(j, columns - 1)) * dim + d)];
  };
  const int i = int(r), j = int(c);
  const double down = r - i, right = c - j;
  return (1 - down) * ((1 - right) * at(i, j) + right * at(i, j + 1)) +
         down * ((1 - right) * at(i + 1, j) + right * at(i + 1, j + 1));
}

void turn(double* head, int dim, int row, int column) {
  for (int j = 0; j < dim / 2; ++j) {
    const double angle = (j % 2 ? row : column) * std::pow(10000.0, -4.0 * (j / 2) / dim);
    const double x = head[2 * j], y = head[2 * j + 1];
    head[2 * j] = x * std::cos(angle) - y * std::sin(angle);
    head[2 * j + 1] = x * std::sin(angle) + y * std::cos(angle);
  }
}

Row attend(const VisionConfig& c, const Rows& qkv, size_t t) {
  const size_t dim = size_t(c.head_dim), width = size_t(c.heads) * dim;
  Row out(width);
  for (size_t h = 0; h < size_t(c.heads); ++h) {
    Row weights;
    double largest = -INFINITY, total = 0;
    for (const Row& other : qkv) {
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += qkv[t][h * dim + d] * other[width + h * dim + d];
      weights.push_back(score / std::sqrt(double(dim)));
      largest = std::max(largest, weights.back());
    }
    for (double& w : weights) total += w = std::exp(w - largest);
    for (size_t p = 0; p < qkv.size(); ++p)
      for (size_t d = 0; d < dim; ++d)
        out[h * dim + d] += weights[p] / total * qkv[p][2 * width + h * dim + d];
  }
  return out;
}

void add(Row& x, const Row& y) {
  for (size_t d = 0; d < x.size(); ++d) x[d] += y[d];
}

}  // namespace

std::vector<float> reference_features(const VisionConfig& c, int text_hidden, const Checkpoint& checkpoint,
                                      const Canvas& canvas) {
  const std::string tower = "vision_tower.";
  const int rows = canvas.height / c.patch, columns = canvas.width / c.patch;
  const Row patch_weight = read(checkpoint, tower + "patch_embed.proj.weight");
  const Row table = read(checkpoint, tower + "patch_embed.pos_emb.weight");
  Rows x;
  for (int r = 0; r < rows; ++r)
    for (int col = 0; col < columns; ++col) {
      Row patch;
      for (int channel = 0; channel < 3; ++channel)
        for (int i = 0; i < c.patch; ++i)
          for (int j = 0; j < c.patch; ++j)
            patch.push_back(
                (canvas.pixels[size_t(((r * c.patch + i) * canvas.width + col * c.patch + j) * 3 + channel)] /
                     255.0 -
                 c.mean[channel]) /
                c.std[channel]);
      x.push_back(product(patch_weight, patch));
      for (int d = 0; d < c.hidden; ++d)
        x.back()[size_t(d)] +=
            between(table, c.table_rows, c.table_columns, c.hidden, (r + 0.5) * c.table_rows / rows - 0.5,
                    (col + 0.5) * c.table_columns / columns - 0.5, d);
    }

  for (int l = 0; l < c.layers; ++l) {
    const std::string block = tower + "encoder.blocks." + std::to_string(l) + ".";
    const Row norm0 = read(checkpoint, block + "norm0.weight"),
              norm1 = read(checkpoint, block + "norm1.weight");
    const Row wqkv = read(checkpoint, block + "wqkv.weight"), wo = read(checkpoint, block + "wo.weight");
    const Row fc0 = read(checkpoint, block + "mlp.fc0.weight"),
              fc1 = read(checkpoint, block + "mlp.fc1.weight");
    Rows qkv;
    for (size_t t = 0; t < x.size(); ++t) {
      qkv.push_back(product(wqkv, normed(x[t], norm0, std::pow(2.0, -23))));
      for (int h = 0; h < 2 * c.heads; ++h)
        turn(qkv.back().data() + h * c.head_dim, c.head_dim, int(t) / columns, int(t) % columns);
    }
    for (size_t t = 0; t < x.size(); ++t) add(x[t], product(wo, attend(c, qkv, t)));
    for (Row& row : x) {
      Row hidden = product(fc0, normed(row, norm1, std::pow(2.0, -23)));
      for (double& v : hidden) v *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      add(row, product(fc1, hidden));
    }
  }

  const Row final_norm = read(checkpoint, tower + "encoder.final_layernorm.weight");
  const Row proj0 = read(checkpoint, "mm_projector.proj.0.weight"),
            proj2 = read(checkpoint, "mm_projector.proj.2.weight");
  const Row post = read(checkpoint, "mm_projector.post_norm.weight");
  for (Row& row : x) row = normed(row, final_norm, std::pow(2.0, -23));
  std::vector<float> features;
  for (int r = 0; r < rows; r += 2)
    for (int col = 0; col < columns; col += 2) {
      Row four;
      for (const auto& [i, j] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
        const Row& from = x[size_t((r + i) * columns + col + j)];
        four.insert(four.end(), from.begin(), from.end());
      }
      Row hidden = product(proj0, four);
      for (double& v : hidden) v *= 0.5 * std::erfc(-v / std::sqrt(2.0));
      for (double v : normed(product(proj2, hidden), post, 1e-5)) features.push_back(float(v));
    }
  if (features.size() % size_t(text_hidden) != 0) throw std::runtime_error("features do not fill their rows");
  return features;
}

}  // namespace dsa::test
