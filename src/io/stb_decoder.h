// io/stb_decoder.h: stb_image for JPEG and PNG, behind bounded memory. Inside io only.
#pragma once

#include "io/picture_codec.h"

namespace dsa {

// The file must have passed read_header of its codec: stb_image trusts what that checks. All that stb_image allocates
// is zeroed, counted and freed again, and what its header does not explain is refused as damage.
Result<DecodedPicture> decode_with_stb(const char* format, PictureBytes file, const PictureHeader& header);

}  // namespace dsa
