/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Food for the compiler, without headers: what `gcc -O2` works on in the guest. */
typedef unsigned long size;

struct node {
	struct node *left, *right;
	long key, value;
};

static struct node *rotate(struct node *node, int left)
{
	struct node *top = left ? node->right : node->left;

	if (left)
		node->right = top->left, top->left = node;
	else
		node->left = top->right, top->right = node;
	return top;
}

struct node *insert(struct node *root, struct node *new)
{
	if (!root)
		return new;
	if (new->key < root->key)
		root->left = insert(root->left, new);
	else
		root->right = insert(root->right, new);
	if (root->left && root->left->value > root->value)
		return rotate(root, 0);
	if (root->right && root->right->value > root->value)
		return rotate(root, 1);
	return root;
}

long sum(const struct node *node)
{
	return node ? node->value + sum(node->left) + sum(node->right) : 0;
}

void multiply(const double *a, const double *b, double *c, size n)
{
	for (size i = 0; i < n; i++)
		for (size j = 0; j < n; j++) {
			double cell = 0;

			for (size k = 0; k < n; k++)
				cell += a[i * n + k] * b[k * n + j];
			c[i * n + j] = cell;
		}
}

int parse(const char *text, long *result)
{
	long value = 0, sign = 1;

	while (*text == ' ' || *text == '\t')
		text++;
	switch (*text) {
	case '-':
		sign = -1;
		/* fallthrough */
	case '+':
		text++;
	}
	if (*text < '0' || '9' < *text)
		return -1;
	for (; '0' <= *text && *text <= '9'; text++)
		value = value * 10 + (*text - '0');
	*result = sign * value;
	return *text ? -1 : 0;
}
