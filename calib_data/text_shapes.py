MAKERS = []
