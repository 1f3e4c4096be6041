// api/image.cc: pictures.
#include "api/handles.h"
#include "api/structs.h"
#include "io/picture.h"

using namespace dsa;
using namespace dsa::api;

namespace {

Result<PictureLimits> read_limits(const dsa_image_options* options) {
  dsa_image_options o{};
  if (options != nullptr) DSA_TRY(read_in(options, "dsa_image_options", o));
  DSA_TRY(check_reserved(o.max_tokens != 0, "max_tokens"));
  DSA_TRY(check_reserved(o.reserved != 0, "dsa_image_options.reserved"));
  DSA_TRY(check_constant(o.refuse_too_large, 2, "refuse_too_large"));
  PictureLimits limits;
  limits.max_side = int(std::min<uint32_t>(o.max_side, INT32_MAX));
  limits.refuse_too_large = o.refuse_too_large != 0;
  if (o.max_encoded_bytes != 0) limits.max_encoded_bytes = o.max_encoded_bytes;
  if (o.max_pixels != 0) limits.max_pixels = o.max_pixels;
  return limits;
}

dsa_image* share(Picture picture) {
  return new dsa_image(std::make_shared<const Picture>(std::move(picture)));
}

}  // namespace

dsa_status dsa_image_from_file(const dsa_runtime* runtime, const char* path, const dsa_image_options* options,
                               dsa_image** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(path, "path"));
    DSA_TRY(check_pointer(out, "out"));
    DSA_ASSIGN(const std::string_view name, read_utf8(path, DSA_NTS, "path"));
    DSA_ASSIGN(const PictureLimits limits, read_limits(options));
    DSA_ASSIGN(Picture picture, Picture::from_file(std::string(name), limits));
    *out = share(std::move(picture));
    return DSA_OK;
  });
}

dsa_status dsa_image_from_memory(const dsa_runtime* runtime, const void* data, size_t len,
                                 const dsa_image_options* options, dsa_image** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    if (len > 0) DSA_TRY(check_pointer(data, "data"));
    DSA_TRY(check_pointer(out, "out"));
    DSA_ASSIGN(const PictureLimits limits, read_limits(options));
    DSA_ASSIGN(Picture picture, Picture::decode({static_cast<const uint8_t*>(data), len}, limits));
    *out = share(std::move(picture));
    return DSA_OK;
  });
}

dsa_status dsa_image_from_pixels(const dsa_runtime* runtime, const dsa_pixels* pixels,
                                 const dsa_image_options* options, dsa_image** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(runtime, "runtime"));
    DSA_TRY(check_pointer(pixels, "pixels"));
    DSA_TRY(check_pointer(out, "out"));
    dsa_pixels p{};
    DSA_TRY(read_in(pixels, "dsa_pixels", p));
    DSA_TRY(check_pointer(p.data, "dsa_pixels.data"));
    DSA_TRY(check_constant(p.format, 5, "dsa_pixels.format"));
    DSA_ASSIGN(const PictureLimits limits, read_limits(options));
    if (p.width > INT32_MAX || p.height > INT32_MAX)
      return error(Code::argument, "the picture is ", p.width, "x", p.height, ", sides have at most ",
                   INT32_MAX)
          .with_fix(Fix::input);
    DSA_ASSIGN(Picture picture,
               Picture::from_pixels({static_cast<const uint8_t*>(p.data), int(p.width), int(p.height),
                                     p.stride, PixelFormat(p.format), p.orientation},
                                    limits));
    *out = share(std::move(picture));
    if (p.release != nullptr) p.release(p.release_ud, p.data);
    return DSA_OK;
  });
}

void dsa_image_retain(const dsa_image* image) { retain(image); }
void dsa_image_release(const dsa_image* image) { release(image); }

dsa_status dsa_image_get_size(const dsa_image* image, uint32_t* width, uint32_t* height) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(image, "image"));
    DSA_TRY(check_pointer(width, "width"));
    DSA_TRY(check_pointer(height, "height"));
    *width = uint32_t(image->impl->width());
    *height = uint32_t(image->impl->height());
    return DSA_OK;
  });
}

dsa_status dsa_image_get_id(const dsa_image* image, dsa_str* out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(image, "image"));
    DSA_TRY(check_pointer(out, "out"));
    *out = view_of(image->impl->id());
    return DSA_OK;
  });
}

dsa_status dsa_image_prepare(const dsa_image* image, const dsa_model* model, dsa_op** out) {
  return guard([&]() -> Outcome {
    DSA_TRY(check_handle(image, "image"));
    DSA_TRY(check_handle(model, "model"));
    DSA_TRY(check_pointer(out, "out"));
    DSA_ASSIGN(std::shared_ptr<Operation> operation, Engine::prepare_picture(model->impl, image->impl));
    try {
      *out = new dsa_op(operation);
    } catch (...) {
      operation->cancel();
      throw;
    }
    return DSA_OK;
  });
}
