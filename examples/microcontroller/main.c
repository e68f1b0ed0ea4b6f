/* Reads a handwritten digit with a model that softq built, and says how its label goes. */
#include "board.h"
#include "digits.h"
#include "image.h"

int main(void)
{
    static float logits[DIGITS_LOGITS_LENGTH];
    char text[] = "digit ?, label ?\n";
    uint32_t best = 0;

    const int code = digits_run(image, logits);
    if (code != DIGITS_OK) {
        print_text("the run ends with code ");
        print_number((uint32_t)code);
        return code;
    }
    for (uint32_t i = 1; i < DIGITS_LOGITS_LENGTH; ++i) {
        best = logits[i] > logits[best] ? i : best;
    }
    text[6] = (char)('0' + best);
    text[15] = (char)('0' + IMAGE_LABEL);
    print_text(text);
    return 0;
}
