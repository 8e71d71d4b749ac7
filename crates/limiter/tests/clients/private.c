/* Found by nobody but who knows where. */
int answer(void) {
    return 42;
}
